"""Durable streams: the events of a call, written to a store so that they survive connections and the hub.

In: the log of a running call, from the moment it becomes durable: at its first event, after 250 ms, or on request.
From other processes: the rows of a shared store and the messages that they leave there.

Out: rows and events in the store, and committed events for the readers of a stream.

Held together by `table`, which knows every stream of this process, those of its own calls and those that somebody here
follows. `writer` follows the log of one call and commits batches, one at a time. `port` is all streams, and one of
them, in the hands of a principal. `inbox` carries cancellation and answers to the process that owns a call, `takeover`
adopts the streams of a hub that has gone, `orphans` says for how long a call continues without its client.

Not here: following the committed events (`calls.reading`), the stores (`mcp_hub.stores`), the form of a stored event
(`protocol.shape.stream_events`), and the ways in which clients read streams (`fronts`).
"""
