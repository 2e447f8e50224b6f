"""Calls in a line each: the last ones that ended, and those that run, for people who watch the hub.

In: the record of each call that ends, from the registry, as its observer.

Out: `CallSummary` records of calls that ended behind a cursor, and of calls that run now.

Held together by `recent.RecentCalls`, which holds the last 10,000 endings, at most 8 MiB, packed. Its cursor counts
endings; its epoch distinguishes one process from the next. A quick call is never stored, so only this ring keeps it.
Texts are masked and cut before they are kept.

Not here: the events of a call (`calls.log`, `calls.streams`), counters (`calls.metering`), and the choice of calls that
somebody may see (`app.dashboard`).
"""
