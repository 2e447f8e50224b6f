"""Shapes: internal values in the form that one era, a store or a REST client reads.

In: results, progress, log messages, tasks and events of a call, all with encoded payloads.

Out: encoded JSON in parts that the caller joins, so that a large result is copied once.

Held together by one rule: bytes are spliced, and a result is taken apart one level only where the eras differ.
`results` shapes results, progress and log notifications, and recognizes a final result without parsing it; `tasks`
shapes the tasks extension, `questions` what a server asks its caller; `stream_events` and `stream_errors` are the
stored form of events and errors, which REST shows unchanged. `produced` checks events from workers and servers.

Everything here is pure.

Not here: the decision who receives what (`fronts`), and storing (`calls.streams`, `stores`).
"""
