"""Servers from a registry: a `server.json` becomes an entry of `servers.yaml`.

The document is a stranger's: `${…}` in it stays text, and only known programs are started.

A person's values fill in arguments, variables and headers.

A `ConfigError` names missing values.

* `server_json`: makes the entry
* `dangers`: parts of the command that may run other code
"""
