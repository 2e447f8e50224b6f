"""Wires: JSON-RPC connections behind one interface, whatever carries them.

In: frames to send, requests of the hub's own, and bytes from the peer.

Out: the answer to each request, and every other message handed to a `WireHandler`. Bytes that cannot be read are
handed over too and never raise.

Held together by `base`: `Wire` is the interface, `Requests` the table that matches answers to requests. `pipe` carries
both directions over a pair of pipes and joins writes that belong together; `server_pipe` adds what servers on stdio do
wrong, `files` opens the ends of a pipe, `socket_pipe` is one over a socket. `remote` is the common part of `http`
(Streamable HTTP) and `sse` (the deprecated transport). `http_client` makes the HTTP client: certificates, proxies, the
hub's name. `responses` reads an HTTP response that holds no message, `bodies` undoes compression in bounded pieces and
bounds what one peer may have half sent.

This package may import asyncio, because a task and a memory stream per message would cost more than the message.

Not here: MCP methods and eras (`protocol`, `upstreams.peer`), and ASGI (`fronts.http`).
"""
