"""The lists of a server as `Snapshot`s of raw definitions.

* `list_state`: one server's lists, read again when they change
* `list_reader`: reads page by page, within bounds; keeps the last lists in one file per server
* `list_union`: joins lists by name; those of principals with accounts
"""
