"""MCP without I/O: pure functions and tables for what peers send and what they may be sent.

In: encoded messages, headers, capabilities, events of a call.

Out: decoded envelopes, the era of a request, encoded messages, or the JSON-RPC error that a mistake calls for.

Held together by `eras`, the table of what each protocol version can carry. `meta` splits `_meta`, `headers` writes and
checks the headers of modern requests, `capabilities` and `extensions` are what peers declare, `kinds` the table of
tools, resources, templates and prompts. `sse` writes and reads event streams; `notifications`, `progress` and `cursors`
are what their names say.

Sub-packages: `jsonrpc` (bytes to envelopes), `shape` (internal values to the form of an era), `definitions` (entries of
lists as clients read them), `rest` (JSON of the REST API). `skills` reads entries of `skills/list`.

Payloads stay encoded: arguments, definitions and results are bytes that the hub copies and does not parse.

Not here: connections (`wire`), the SDK, and anything that waits.
"""
