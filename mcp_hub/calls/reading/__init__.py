"""Reading durable streams: committed events, from memory and a store.

In: events that a writer commits, and pages of the store.

Out: events for each follower, in order.

- `stream`: a stream in this process
- `stored`: single stored events

Cursors never pass what is stored.
"""
