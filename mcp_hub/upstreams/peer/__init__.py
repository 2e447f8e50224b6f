"""An MCP session with one server, over any wire and in either era.

* `peer`: requests, calls and messages of one connection
* `negotiation`, `era_cache`, `server_eras`: find, remember and choose the era
* `state`: the settled protocol and the end of the connection
* `callers`: the calls that messages belong to
* `stray_messages`: messages without a call
* `questions`, `input_questions`: questions of handshake and modern servers
* `wanted`, `subscriptions`, `listen_stream`: resources to watch
* `task_poll`, `tasks`, `modern_tasks`: calls that a server runs as tasks
"""
