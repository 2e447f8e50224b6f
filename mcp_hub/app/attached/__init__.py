"""The background hub that stdio clients share: its folder, sockets and lifetime.

It ends when stopped, idle, or replaced by a newer build.

* `hub`: the whole, with the clients that are connected
* `claim`: the folder's lock, record and socket
* `clients`: how clients come: hellos, answers, pipes
* `sandboxes`: sandboxes from settings
"""
