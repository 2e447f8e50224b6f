"""Supervision: one server kept running, with back-off, rest, draining and handover.

In: a function that makes a fresh `Connection`, the restart rules of the configuration, and calls.

Out: an `Upstream` that waits for its server, restarts it, and says in its status why it is not ready.

Held together by `supervisor`, whose owner task opens and closes connections, one after the other, and `lifecycle`, a
pure table that decides every transition; `state_log` logs them. `server` is what outlives a connection, and what the
owner of an upstream does with it. `managed_upstream` has a supervisor, and runs calls, tasks and subscriptions over the
current connection. `both_eras` has two of these, `scoped` one for each session or call; `side_connections` divides
their callers. `turns` lets sessions take turns at a server whose questions cannot be attributed. `liveness` checks a
server that let a call time out.

`connection` is the protocol of one connection. `divided` is a server with several of them, `both_eras` one whose
connection follows the era of its first caller. `state_log` writes each change of state to the log.

Not here: how a connection is made (`upstreams.process`, `upstreams.remote`) and the protocol (`upstreams.peer`).
"""
