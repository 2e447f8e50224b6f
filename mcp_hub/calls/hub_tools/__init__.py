"""The hub's own tools about calls and events.

In: a call of `hub_calls`, `hub_cancel` or `hub_events`.

Out: a list of calls; new output of the call waited for, its result, or its cancellation; events.

- `own_tools`: definitions and handlers
- `events`: `hub_events`
- `stream_wait`: waits for any replica's call

Its questions go to the waiting client.
"""
