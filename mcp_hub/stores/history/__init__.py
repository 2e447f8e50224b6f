"""The history of calls: each call that has ended, in batches, for as long as three bounds allow.

In: batches of calls that have ended, with texts that are masked already (`calls.history.journal`).

Out: calls that fit a filter, newest first; one call with its texts; figures of calls over time; what was lost.

Held together by `base.HistoryStore`, the interface of both stores: `file` keeps a file of SQLite, or memory, `replicas`
keys of a Redis server that replicas share. `base` has the record of a batch and its columns, `reading` looks through
them.

A batch is one record for up to a few hundred calls: columns of numbers, and each group of calls with the same tool,
client and outcome once. A row for each call would cost a quick call ten times as much to write.

Not here: what is kept of a call (`calls.history.journal`), and who may see it (`app.dashboard.past_calls`).
"""
