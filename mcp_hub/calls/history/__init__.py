"""Calls in a line each: those that have ended, for people who watch the hub or ask later, and those that run.

In: the record of each call that ends, from the registry, as its observer.

Out: `CallSummary` records of calls that ended behind a cursor, and of calls that run now; batches of calls with their
texts, for a `stores.history.base.HistoryStore`.

Held together by two observers. `recent.RecentCalls` holds the last 10,000 endings, at most 8 MiB, packed. Its cursor
counts endings; its epoch distinguishes one process from the next. `journal.CallJournal` takes each call into the
history, off its way; `batches` makes a batch of many. Texts are masked and cut before they are kept.

Not here: the events of a call (`calls.log`, `calls.streams`), counters (`calls.metering`), the place of past calls
(`stores.history`), and the choice of calls that somebody may see (`app.dashboard`).
"""
