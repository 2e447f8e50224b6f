"""Ways for a command to reach a hub: one of its own, a running one, or only its store.

In: the options of a command (`--url`, `--token`, the configuration) and the work that it wants done.

Out: calls, streams and server states in the same form, wherever they come from, and an exit code for each failure.

Held together by `stream_access`, which chooses between a running hub and the store, and `following`, which shows a
call to its end. `embedded` starts a hub inside the command and `waiting` waits for its servers. `remote` and
`remote_servers` ask a running hub over HTTP. `local_streams` reads durable streams from the store without a hub.

Not here: the HTTP client itself (`mcp_hub.client`), output (`cli.render`), and the commands (`cli.commands`).
"""
