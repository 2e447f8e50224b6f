"""Keeps one server running: starts, back-off, rest, draining and handover.

* `managed_upstream`: an `Upstream` over one connection after another
* `supervisor`: the owner task that opens and closes connections
* `lifecycle`: the pure table of transitions
* `server`: state that outlives a connection, and orders of the owner
* `both_eras`, `scoped`: servers with several connections
* `side_connections`: the callers of such connections
* `turns`: sessions take turns
* `liveness`: checks doubtful servers
* `state_log`: logs changes of state
"""
