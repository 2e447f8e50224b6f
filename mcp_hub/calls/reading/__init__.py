"""Reading durable streams: the committed events of one call, from memory and from a store.

In: what the writer of a call commits, and the pages of events that the store has.

Out: events in order for each follower, by cursor. A cursor never points past what the store has confirmed.

Held together by `stream`, one stream as this process knows it: its row, the latest events and its readers. `stored`
reads and writes single events of the store, and puts a placeholder where one cannot be written or read. `transcript`
is the text of what a call has said so far.

Not here: writing the log of a running call (`calls.streams`), and the stores (`mcp_hub.stores`).
"""
