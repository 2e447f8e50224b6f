"""An MCP session with one server, over any wire and in either era.

* `peer`: requests and calls; the messages of the server
* `negotiation`, `era_cache`, `server_eras`: find, remember and choose the era
* `state`: settled protocol and end of the connection
* `callers`: attributes messages to calls; messages without a call
* `questions`, `input_questions`: questions of handshake and modern servers
* `wanted`, `subscriptions`: watched resources
* `task_poll`, `tasks`: calls run as tasks
* `streams`: events of servers that stream, in order
"""
