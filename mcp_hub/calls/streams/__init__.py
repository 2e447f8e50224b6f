"""Durable streams: a call's events in a store, so that they survive connections and the hub.

A call becomes durable with its first event, after 250 ms, or by a request.

- `table`: this process's streams; `port`: those of a principal
- `writer`: writes one call's log
- `owners`: messages to a call's owner; adopts lost streams
"""
