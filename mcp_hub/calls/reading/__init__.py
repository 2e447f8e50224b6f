"""Reading durable streams: committed events, from memory and a store.

- `stream`: a stream in this process
- `stored`: single stored events

Cursors never pass what is stored.
"""
