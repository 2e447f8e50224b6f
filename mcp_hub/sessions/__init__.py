"""Sessions: who is asking, what kind of client it is, and which resources it is subscribed to.

In: what a front knows of a client: principal, profile, era, version, capabilities, the name it gave itself.

Out: a `Session`, which every request to the hub's port carries; a `ClientKind`, on which lists depend; references to
resources at their upstreams.

Held together by `session.Session`. A handshake session lives as long as its connection or `Mcp-Session-Id`, a modern
one as long as its request. `session.Sessions` is the bounded table of handshake sessions over HTTP. `client_kinds`
maps a client to its kind, one object per kind; `subscriptions` pairs the subscriptions of sessions with references at
upstreams.

`clients_seen` lists the clients since the start, `stored` keeps handshake sessions that outlive the hub.

Not here: sessions with upstream servers (`upstreams.peer`), tokens
(`fronts.http.auth`), and the facts about clients (`config.schema.clients`).
"""
