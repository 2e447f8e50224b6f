"""Python functions as tools and sources of events, run in the hub's own process.

* `registry`: `Registry`, `Context`, `Progress` and `Result` for authors of tools
* `upstream`: runs one registry's tools
* `events`: runs its event functions
* `schemas`: converts between JSON and Python values
* `source`: checks a reference without an import
"""
