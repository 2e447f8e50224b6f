"""Logins to remote servers (OAuth 2.1): the hub as a client of their authorization servers.

In: the challenge of a server that refuses a request, the client registration of the configuration, and a person with a
browser if one is needed.

Out: an access token for each request, renewed before it expires; a stored login that all hubs of the user share.

Held together by `access`, the login of one server while the hub runs. `grants` are the records of a login, `store`
keeps them in files with a lock each. `login` begins a new one, in a browser that returns to `redirect`, or without a
person; `flows` runs it through the SDK's client and is imported by a login only. `token_requests` renews a login and
stands between the SDK's client and the network, to which `addresses` is the only way out, over connections of `pinned`
to addresses that it has checked. `answers` reads what comes back without trusting it.

Not here: tokens of the hub's own clients (`fronts.http.auth`, `fronts.http.oauth`), and noticing a login made by
another process (`app.logins`).
"""
