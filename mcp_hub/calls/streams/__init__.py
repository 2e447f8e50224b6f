"""Durable streams: a call's events in a store, so that they survive connections and the hub.

In: a call's log from its first event, 250 ms, or a request on.

Out: rows and events in the store, and events for readers.

- `table`: this process's streams; `port`: those of a principal
- `writer`: writes one call's log
- `owners`: messages to a call's owner; adopts lost streams
"""
