"""The hub's own tools about calls and events.

- `own_tools`: `hub_calls`, `hub_cancel`
- `events`: `hub_events`
- `stream_wait`: waits for any replica's call

An awaited call's questions go to the waiting client.
"""
