"""The hub's own tools for clients that are answered before their calls end: `hub_wait` and `hub_cancel`.

In: a call of one of these tools, and who makes it (`own_tools.OwnToolCaller`): the soft deadline of the client, and how
results look to it.

Out: new output of the call that is waited for, its original result once there is one, or the end of it.

Held together by: `own_tools`, the definitions and the handlers; `stream_wait`, one wait for a call, here or at
another replica, which passes questions of that call on to the client that waits.

Not here: the text of what a running call has said (`calls.reading.transcript`), the answer that sends a client here
(`calls.handle`), and `read_result`, which reads truncated results (`calls.results`).
"""
