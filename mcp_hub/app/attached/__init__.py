"""The background hub that stdio clients share: its folder, sockets and lifetime.

It ends when stopped, idle, or replaced by a newer build.

* `hub`: the whole
* `claim`: the folder's lock, record and socket
* `clients`: answers hellos, serves accepted clients
* `sandboxes`: sandboxes from settings
"""
