"""The commands around a running hub.

* `status`: finds the hub, or ends it (`stop`)
* `logs`: logs of servers
* `history`: past calls
* `service`: starts with the session
* `watch`: opens the dashboard or `mcp-hub top`
* `paths`: the files of the hub
* `editors`: schema and completion
* `attached`: runs the background hub
"""
