"""Health and metrics of a hub.

`health`:
    `/livez`: the event loop runs
    `/healthz`: the store works
    `/readyz`: clients are welcome
`metrics`:
    `/metrics`: counters for Prometheus

No label is a client's or a server's text: the configuration bounds the number of series.
"""
