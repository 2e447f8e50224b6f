"""An MCP session with one server, over any wire and in either era.

* `peer`: requests and calls; the server's messages
* `negotiation`, `era_cache`, `server_eras`: find, remember and choose the era
* `state`: protocol and end of the connection
* `callers`: attributes messages to calls
* `questions`, `input_questions`: of handshake and modern servers
* `wanted`, `subscriptions`: watched resources
* `task_poll`, `tasks`: calls run as tasks
* `streams`: events of servers that stream
"""
