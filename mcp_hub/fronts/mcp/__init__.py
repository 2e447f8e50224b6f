"""The MCP binding: requests of MCP clients answered in both eras, whatever transport carries them.

In: decoded messages and the session that they belong to, from `fronts.stdio`, `fronts.http` or `fronts.legacy_sse`.

Out: results, errors, notifications and requests to the client, each shaped for its era.

Held together by `binding`, which answers a request or starts its call, and `responder`, which follows one call and
delivers its events and its answer. `duplex` serves a client on a connection that carries messages both ways;
`message_queue` is the connection of a client that fetches its messages. `client_requests` asks handshake clients,
`announcer` and `subscriptions` deliver changes that belong to no call. `quick_call` is the short way of a call that
ends at once, `results` shapes its result, `held_answers` keeps an answer behind its progress. `bonds` tells what
becomes of the calls of a client that has gone.

Clients that cannot wait get an early answer: a task (`tasks`, `task_notices`) or the output so far.
`partials` and `stream_reads` are the hub's extension.

Not here: HTTP, pipes, authentication, and the decision which tools a client sees.
"""
