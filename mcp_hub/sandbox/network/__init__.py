"""The hub's proxy for sandboxed servers: which hosts a server reaches, and how each connection is made.

In: one end of a connection of a server, and the hosts of that server's rule.

Out: a connection to an allowed host, or a refusal with the line to add.

Held together by `proxy.HostProxy`. `interface` has what the start of a server needs of it, `requests` reads the
requests of a server, and `dial` resolves names, checks addresses and connects.

Not here: the system calls of the server (`sandbox.connector`) and the words of a rule (`addresses`).
"""
