"""Ways for a command to reach a hub, or only its store.

* `hub`: the hub at `--url`, the running one, or one in this process
* `running`: records of running hubs; background hubs
* `local_streams`: the store
* `waiting`: waits for servers
* `following`: calls, streams and past calls, of a hub or its store
* `answering`, `form`: questions of a tool, at the terminal
* `learning`: runs a server without its file rule
"""
