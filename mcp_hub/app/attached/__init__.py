"""The background hub that stdio clients share: its folder, sockets and lifetime.

It ends when stopped, idle, or replaced by a newer build.

* `hub`: the whole
* `claim`: the folder's lock and record
* `sockets`: connections of this user only
* `greeting`: the answer to a hello
* `clients`: serves accepted clients
* `sandboxes`: sandboxes from settings
"""
