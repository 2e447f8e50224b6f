"""Sessions of clients: caller, kind of client, and subscriptions.

`session`          a client in one era; the table of HTTP sessions
`stored`           handshake sessions that outlive the hub
`client_kinds`     limits for each kind of client
`clients_seen`     clients since the start
`subscriptions`    subscribed resources
"""
