"""JSON-RPC connections behind one interface. May import asyncio.

* `base`: the interface, and the requests under way
* `pipe`: two pipes, or one socket
* `server_pipe`: two pipes to a server
* `files`: the ends of a pipe
* `remote`: the common part of `http` (Streamable HTTP) and `sse` (deprecated)
* `http_session`: the session and era of Streamable HTTP
* `http_client`: certificates, proxies, redirects
* `responses`: HTTP responses without a message
* `bodies`: responses: decompression, a bound, messages
"""
