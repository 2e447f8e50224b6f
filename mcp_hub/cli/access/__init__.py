"""Ways for a command to reach a hub: always behind one client, or only its store.

In: the options of a command (`--url`, `--token`, `--local`, the configuration) and the work that it wants done.

Out: `ReachedHub` with a `HubClient`, or the streams of a store, and an exit code for each failure.

Held together by `hub`: the client speaks HTTP to the hub at `--url`, or to the running one of the configuration
(`running`); otherwise `hub` opens a hub in this process and the client calls its REST front directly, or, for commands
about streams, `local_streams` reads the store without a hub. `waiting` waits for the servers of a hub that has just
started. `following` shows a call to its end. `learning` runs one server without the rule of files of its sandbox.

`background` sends requests to background hubs and ends them. `stored` asks the running hub about streams and past
calls, or reads the store.

Not here: the client itself (`mcp_hub.client`), output (`cli.render`), and the commands (`cli.commands`).
"""
