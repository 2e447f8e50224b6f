"""Provider formats: tools, calls, results and model output in the shapes of model providers. No I/O, no SDK.

* `tools`, `calls`, `results`: to and from MCP
* `providers`: facts about each format
* `events`, `output_reader`, `model_output`: streamed output of models, and its readers
* `prompted`: models whose calls are text
* `schemas`: JSON Schema for a provider
* `arguments`: of calls
* `search`: tool search
* `connectors`: servers that a provider connects to
* `records`: shared types
"""
