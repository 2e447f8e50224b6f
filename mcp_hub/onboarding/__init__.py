"""Brings servers into the hub, and the hub into clients, by editing files of both.

Nothing here prints or asks. An error leaves every file as it was.

* `files`: replaces one file
* `clients`: the table of clients
* `changes`: plans, makes and undoes changes
* `imports`: servers of clients
* `registry`: servers of a registry
* `servers_file`: changes to `servers.yaml`
"""
