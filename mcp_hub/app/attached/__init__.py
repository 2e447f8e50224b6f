"""The background hub that clients over stdio join: its folder, its sockets, and how long it lives.

In: a running hub (`app.build`) and the folder that is its alone (`attach.folder`).

Out: `hub.AttachedHub`, which serves every client that says hello on `hub.sock` as a session of its own, and HTTP for
the user's commands on `http.sock`, until it is stopped, idle, or a newer build takes its place.

Held together by `hub`. `claim` holds the lock of the folder and its record, `sockets` accepts connections of this user
only, `greeting` decides about a hello, and `clients` serves those who are welcome.

Only what is still this hub's own is removed: a socket by its inode, a record by its id.

`sandboxes` reads the sandbox of a server from its settings.

Not here: the other end, which imports nothing of the house (`attach`), and MCP itself (`fronts.stdio`).
"""
