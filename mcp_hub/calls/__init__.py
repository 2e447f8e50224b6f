"""The calls that run: each has a record, a task and a log, and ends exactly once.

In: a `Call` and its handler, an upstream's `call` or one of the hub's own tools. While it runs, events come through
the `CallChannel` that the handler received.

Out: a `CallHandle` for the front. Readers pull events from the call's log by cursor; a slow reader makes the log
merge events and never holds up the call.

Held together by `registry`, which admits, queues, times and cancels calls, and `runner`, the only place where a call
ends. `starter` starts calls at their upstreams. `plan` is what is decided before a call starts, `rules` the settings of
calls, `timeouts` its deadlines. `machine` is the table of states, `log` the append-only log, `coalesce` the rules for
merging, `progress` makes heartbeats and messages with partial content. `attempts` makes a call again after a failure
that may pass, as `retries` decides. `pending_input` holds a call until a modern client returns with its answers.
`handle` is all that a front sees of a call, its early answers included; `metering` counts outcomes.

Sub-packages: `reading` has the committed events of durable calls, `streams` makes calls durable, `results` truncates
long results and reads them back, `history` keeps past calls, `hub_tools` are the tools of the hub itself.

Not here: routing a request to its server (`catalog`), talking to servers (`upstreams`), and the shape in which a
client gets an answer (`fronts`, `protocol.shape`).
"""
