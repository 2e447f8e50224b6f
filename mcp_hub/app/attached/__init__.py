"""The background hub that stdio clients share. It ends when stopped, idle, or replaced by a newer build.

* `hub`: the whole, with its clients
* `claim`: the folder's lock, record and socket
* `clients`: hellos, answers, pipes
* `sandboxes`: sandboxes from settings
"""
