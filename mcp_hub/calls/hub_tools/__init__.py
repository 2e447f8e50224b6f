"""The hub's own tools for clients that get early answers.

In: a call of `hub_wait` or `hub_cancel`.

Out: new output of the call waited for, its result, or its cancellation.

- `own_tools`: definitions and handlers
- `stream_wait`: waits for any replica's call

Its questions go to the waiting client.
"""
