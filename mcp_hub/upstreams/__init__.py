"""Sources of tools and skills: implementations of `mcp_hub.call.Upstream`.

* `supervision`: keeps one server running
* `process`: child processes
* `remote`: servers over HTTP
* `peer`: MCP over one connection
* `lists`: a server's lists, cached
* `functions`: Python functions in this process
* `folders`: folders of skills
* `scripts`: scripts over the hub's tools
* `executors`: tools that workers run
* `auth`: OAuth logins at remote servers
* `accounts`: principals' accounts at servers
* `local_source`: the base of sources without a connection
"""
