"""Keeps one server running: starts, back-off, rest, draining and handover.

* `managed_upstream`: an `Upstream` over one connection after another
* `supervisor`: the owner task of connections
* `lifecycle`: the table of transitions
* `server`: state that outlives a connection, and the check of a doubtful server
* `both_eras`, `scoped`, `principals`: servers with several connections
* `side_connections`: their callers
* `turns`: sessions take turns
"""
