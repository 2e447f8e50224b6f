"""The calls that run: each has a record, a task and a log, and ends exactly once.

In: a `Call` and its handler, an upstream's `call` or one of the hub's own tools. While it runs, events come through
the `CallChannel` that the handler received.

Out: a `CallHandle` for the front. Readers pull events from the call's log by cursor; a slow reader makes the log
merge events and never holds up the call.

Held together by `registry`, which admits, queues, times and cancels calls, and `runner`, the only place where a call
ends. `starter` starts calls at their upstreams. `progress` makes heartbeats and messages with partial content.
`machine` is the table of states, `log` the append-only log, `coalesce` the rules for merging. `pending_input` holds a
call until a modern client returns with its answers, `early_answers` make a call a task, or give its output so far.
`handle` is all that a front sees of a call; `metering` counts outcomes.

Sub-packages: `streams` makes calls durable, `retries` makes calls again after failures that may pass, `results`
truncates long results and reads them back, `hub_tools` are the tools of the hub itself.

Not here: routing a request to its server (`catalog`), talking to servers (`upstreams`), and the shape in which a
client gets an answer (`fronts`, `protocol.shape`).
"""
