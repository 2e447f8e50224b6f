"""Provider formats: tools, calls, results and model output in the shapes of model providers. No I/O, no SDK.

* `tools`, `calls`, `results`: to and from MCP
* `providers`: facts about each format
* `events`, `streams`: model output, and its readers
* `prompted`: models whose calls are text
* `schemas`: JSON Schema for a provider
* `arguments`: of calls
* `groups`, `search`: namespaces, tool search
* `connectors`: servers that a provider connects to
* `records`, `errors`: shared types
"""
