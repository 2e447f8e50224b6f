"""Sessions of clients: caller, kind of client, and subscriptions.

`session`          a client in one era, its subscriptions; the table of HTTP sessions
`stored`           handshake sessions that outlive the hub
`clients`          kinds of clients and their limits; clients since the start
"""
