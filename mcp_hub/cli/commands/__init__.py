"""The commands of `mcp-hub`. What to show is decided without I/O.

* `serve`: runs a hub
* `call`, `run`, `streams`: calls, resources, prompts; scripts; durable calls
* `events`: events of servers
* `tools`, `search`: the servers and their tools
* `check`, `doctor`, `repairs`: problems and their fixes
* `approve`, `login`, `account`: approvals, logins and accounts
* `servers`: changes the configuration
* `clients`: other clients
* `running`: running hubs
"""
