"""The commands around a running hub.

* `status`: finds the hub, or ends it
* `history`: past calls, logs of servers
* `service`: starts with the session
* `operate`: opens the dashboard or `mcp-hub top`; reloads, restarts
* `paths`: the hub's files and audit; schema and completion
* `attached`: runs the background hub
"""
