"""JSON-RPC: bytes to lines, lines to envelopes, and the other way round.

In: chunks of bytes in any size, also from peers that break the rules.

Out: an `Envelope` (id, method, one level of members, still encoded), or a `BadMessage` that keeps the id if one can be
read. Encoded frames for requests, notifications, results and errors.

Held together by `envelope`, which decodes one message. `framing` cuts a pipe into lines, linear and bounded. `batches`
takes apart lines with several messages. `salvage` finds the id of a message that cannot be decoded, `repair` makes the
answer that stands for it, `depth` measures nesting without recursion. `rpc_errors` has the codes of errors, and which
of them travel on.

Everything here is pure; nothing raises for what a peer sent, except where a docstring says so.

Not here: MCP methods, correlation of answers with requests (`wire.base`), and event streams (`protocol.sse`).
"""
