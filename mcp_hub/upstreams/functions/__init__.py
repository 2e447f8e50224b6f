"""Python functions as tools, run in the hub's own process.

In: a `Registry` of decorated functions, named in `servers.yaml` as `local: module:registry`, and calls of them.

Out: a definition for each function with a JSON Schema from its signature and docstring; results, progress and partial
content from what it returns, yields and raises.

Held together by `upstream.LocalUpstream`, an `Upstream` over one registry. `registry` is the part that authors of
tools see: `Registry`, `Context`, `Progress`, `Result`. `schemas` converts between JSON and Python values with
pydantic.

Async functions run on the event loop, plain ones in threads. They share the process with the hub: one that blocks the
loop or writes to stdout disturbs everything, so a tool that needs isolation belongs into a child process.

`source` looks for a registry in a file without importing it. `output` collects what a generator yields.

Not here: restarts and supervision, which functions do not need.
"""
