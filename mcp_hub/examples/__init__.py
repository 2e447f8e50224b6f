"""Examples to run and to copy from.

In: `servers.yaml` names a registry of Python functions here: `local: "mcp_hub.examples.jobs:registry"`.

Out: tools that a client can call without any other server installed.

`jobs` shows the three kinds of tool that a registry takes: a job that streams its progress and output, a plain
function, and a slow one that can be cancelled. `worker` is a program that executes tools for a hub over REST.

Held together by nothing: each module stands alone and imports only what a user's own tools would import.

`agent` puts a hub under an agent, `embedded` inside a web application, and `calls` makes calls from a script.
`streaming_server` is an MCP server that streams, `tools` a module of plain functions.

Not here: anything that the hub needs. Nothing imports this package; it is loaded by name.
"""
