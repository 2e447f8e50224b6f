"""The commands around a running hub.

* `status`: finds the hub, or ends it (`stop`)
* `history`: what servers wrote, and past calls
* `service`: starts with the session
* `operate`: opens the dashboard or `mcp-hub top`; reloads, restarts
* `paths`: the files of the hub, and whether the lines of its audit hold; schema and completion
* `attached`: runs the background hub
"""
