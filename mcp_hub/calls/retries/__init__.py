"""Retries: a call that failed is made again where that is safe and may help.

In: the failure of an attempt, and the rule for the call's tool (`retry` in `servers.yaml`).

Out: the result of the last attempt. Readers of the call get an `Attempt` event for each new one, and a `Reset` where
they have to discard partial content.

`rules` sorts failures into classes and decides whether, and after which pause, within a budget per server; `attempts`
runs the attempts of one call, and knows what the call itself has against another: a question that was asked, text that
a client cannot take back.

Not here: clients' retries over HTTP (`mcp_hub.client.retrying`) and restarts of servers (`upstreams.supervision`).
"""
