"""Recovery: calls continue when the file of streams is full, read-only, locked or damaged.

In: the same requests as any store, and the faults that `stores.sqlite` reports.

Out: the same answers, from the file where it works and from memory where it does not. No call waits for a broken file.

Held together by `failsafe.FailsafeStore`, the store that the hub uses. A stream whose file fails continues in memory
under the same numbers (`memory_fallback`) and is written to the file when that works again. `recovery` holds the state
of the file over time, decides when to try again and logs each change once. A damaged file is set aside
(`stores.sqlite`) once no process writes to it, and the new one gets all that can be read of it. `shared` does this over
a server that replicas share.

Not here: SQL (`stores.sqlite`) and the store that is memory by choice (`stores.memory`).
"""
