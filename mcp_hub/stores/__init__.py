"""Stores: everything that outlives a process: streams, long results, pins, keys, epochs.

In: opaque lines and bytes with their keys; a state folder that several hubs of one user share.

Out: the same bytes again, in order and without gaps, also to another process and after a crash.

Held together by `base`: the interfaces of all stores of streams (`StreamLog`, `StreamInbox`, `StreamLeases` and
`SessionRows` make an `EventStore`), and the rules that all of them share: one owner per stream, no append after the
end, an epoch that fences off earlier owners. `memory` is one store, `recovery.failsafe` the other, `replicated` the one
that replicas share; `open` chooses. `limits` says what is dropped first, `faults` names what can be wrong.

`instances` and `locks` tell which hub processes are alive. `keyed_files`, `keys` and `epochs` are small files.

Sub-packages: `sqlite`, `redis`, `recovery`, `documents` (long results), `history` (past calls), `server_logs`.

Not here: the meaning of events (`protocol.shape.stream_events`) and the decision when to write (`calls.streams`).
"""
