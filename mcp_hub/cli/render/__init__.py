"""Output for people and programs. Imports rich inside functions.

* `output`: stdout and its failures
* `tables`: tables, lines and JSON
* `renderers`: a running call
* `results`: its result
* `servers`: servers of a hub, and warnings about them
"""
