"""An MCP session with one server, over any wire and in either era.

In: a connected `Wire`, calls of the hub's clients, the resources that they want to be watched.

Out: requests under ids of the hub's own; results; progress, logs and questions, each handed to the call that it
belongs to; changes of lists and resources.

Held together by `peer.Peer`. `negotiation` finds out the era, and `era_cache` remembers it. `callers` attributes
messages that name no call. `questions` brings questions of a server to the caller of exactly one call. `subscriptions`
keeps a server in line with `wanted`, by requests or by one `listen_stream`. Calls that a server runs as tasks are
followed by `task_poll`, in the form of their era (`tasks`, `modern_tasks`); `input_questions` are those of modern
results and tasks. `state` holds the settled protocol and the end of the connection. `stray_messages` takes messages
without a call.

`server_eras` chooses the era of the next connection to a server that speaks both.

Not here: starting and restarting (`upstreams.supervision`), transports (`upstreams.process`, `upstreams.remote`), and
lists (`upstreams.lists`).
"""
