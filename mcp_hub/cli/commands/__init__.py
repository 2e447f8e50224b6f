"""The commands of `mcp-hub`. What to show is decided without I/O.

* `serve`: runs a hub
* `call`, `run`, `streams`: calls, scripts, durable calls
* `events`: events of servers
* `tools`, `search`: servers and their tools
* `check`, `doctor`, `repairs`: problems and fixes
* `approve`, `login`, `account`: approvals, logins, accounts
* `servers`, `clients`, `running`: the configuration, other clients, running hubs
"""
