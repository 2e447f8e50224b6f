"""JSON-RPC connections behind one interface. May import asyncio.

* `base`: the interface, and pending requests
* `pipe`: two pipes, or one socket
* `server_pipe`: two pipes to a server
* `files`: the ends of a pipe
* `remote`: common to `http` (Streamable HTTP) and `sse` (deprecated)
* `http_session`: session and era of Streamable HTTP
* `http_client`: certificates, proxies, redirects
* `responses`: HTTP responses without a message
* `bodies`: decompression, a bound, messages
"""
