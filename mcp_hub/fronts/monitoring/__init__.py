"""Health and metrics: the state of a hub for probes and for Prometheus.

In: requests to `/livez`, `/healthz`, `/readyz` and `/metrics`; the state of the hub, sampled when somebody asks.

Out: one word and a status for probes, details with `?verbose` for callers who may list tools, and metrics in the text
format of Prometheus.

Held together by two protocols, `health.Watched` and `metrics.Sampled`, which `app.status` implements. `health` decides
whether the hub is ready and why not; `metrics` collects counters into families.

Labels are names of configured servers and words of the hub. Names from clients or servers never become labels, so that
the number of series is bounded by the configuration.

Not here: counting (`calls.metering` counts where a call ends) and OpenTelemetry (`app.tracing`).
"""
