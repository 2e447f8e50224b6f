"""Servers from elsewhere: a registry's `server.json` or a domain's server card becomes an entry of `servers.yaml`.

The document is a stranger's: `${…}` in it stays text, and only known programs are started.

A person's values fill in arguments, variables and headers.

A `ConfigError` names missing values.

* `documents`: fetches and reads catalogs, cards and answers of a registry
* `server_json`: makes the entry
* `dangers`: parts of the command that may run other code
"""
