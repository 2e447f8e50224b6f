"""The SQLite store: streams in one file that several hub processes share.

In: appends, reads and claims from the event loop.

Out: confirmed appends and pages of events, by callback on the event loop; `StoreFault` when the file itself fails.

Held together by `store.SqliteStore`, with two threads (`worker`): one writes, one reads, so that reading never waits.
`transactions` is the work of each thread: all waiting writes are committed together, and a job that fails is left out.
`reads` and `writes` are the statements as plain functions of a connection, `schema` the tables and the connection.
`read_only` reads a file that cannot be written. `quarantine` sets a damaged file aside, `salvage` reads what can be
read of it.

The file has a write-ahead log. The beginning, the ending and a takeover of a stream are synced to the disk before they
are confirmed.

Not here: the decision what follows from a fault (`stores.recovery`) and the rules of appending (`stores.base`).
"""
