"""Imports other clients' servers into `servers.yaml`.

First a plan: servers to take, their names, and others with the reason.

Then its changes, also as a part of `install --import`.

Before a person has seen the plan, nothing is resolved or started.

* `found`: reads servers from clients' files
* `plan`: plans and makes the import
"""
