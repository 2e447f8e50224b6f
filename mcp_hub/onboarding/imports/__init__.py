"""Imports other clients' servers into `servers.yaml`.

Before a person has seen the plan, nothing is resolved or started.

* `found`: reads servers from clients' files
* `plan`: plans and makes the import, also for `install --import`
"""
