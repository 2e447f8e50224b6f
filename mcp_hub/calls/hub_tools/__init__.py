"""The hub's own tools about calls.

In: a call of `hub_calls` or `hub_cancel`.

Out: a list of calls; new output of the call waited for, its result, or its cancellation.

- `own_tools`: definitions and handlers
- `stream_wait`: waits for any replica's call

Its questions go to the waiting client.
"""
