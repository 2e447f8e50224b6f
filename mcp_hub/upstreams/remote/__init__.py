"""Remote servers: one connection to a server that somebody else runs.

In: a URL, the headers of its configuration, a transport if one is set, and the hub's login if there is one.

Out: a `Connection` with a negotiated session, over Streamable HTTP of either era or the deprecated HTTP+SSE transport.

Held together by `connection.HttpConnection`, which finds out transport and era and closes the session again.
`session_check` finds out whether a session is lost, and begins the one that takes its place.

Credentials of the hub's clients never come here: a server sees the headers of its own configuration and nothing else.
Each connection has its own client, so that cookies last exactly as long as the session.

Not here: HTTP messages and event streams (`wire.http`, `wire.sse`), the HTTP client (`wire.http_client`), tokens
(`upstreams.auth`), and reconnecting (`upstreams.supervision`)."""
