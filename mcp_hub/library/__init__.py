"""The public library: a hub inside somebody else's program. `mcp_hub` hands out its names.

In comes a configuration (a file or a mapping) and calls of the host program; out go tools and results as `mcp_types`
objects or as the JSON text that they were made from, events of calls, an ASGI application, and a client of the official
SDK. `async with Hub` holds it together: the hub's servers and tasks live as long as that block and in its task.

`hub` is the public class, `stream` a call that is followed by its events, `questions` answers those of a server,
`models` makes models of raw JSON, `mounted` is the ASGI application below somebody else's routes, `sdk_client` the
transport between an SDK client and the hub. `inner` is the only module that touches the hub itself: its port, its
fronts and the composition root.

Nothing of the process is changed here: no signal handler, no subreaper, no logging set-up, no switch interval, no
garbage collector setting, no event loop policy. Not here: tools written in Python (`upstreams/functions`), the events
(`events`), the errors (`errors`).
"""
