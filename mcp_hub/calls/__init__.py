"""Running calls: each has a record, a task and a log, and ends exactly once.

- `registry`: admits, queues, times and cancels; `starter`: starts at upstreams
- `runner`: runs and ends one call; `machine`: its states as a table
- `plan`, `timeouts`: settings and decisions; deadlines
- `log`: append-only; `coalesce`: merging; `progress`: heartbeats, partial content
- `attempts`: retries; `pending_input`: calls that wait for input
- `handle`: a call for fronts; `metering`: counts
- `reading`, `streams`: durable calls, read and written; `feeds`: events of servers
- `results`: long results; `history`: past calls; `hub_tools`: the hub's own tools; `code`: runs of scripts
- `gates`: what is asked before a call is sent
"""
