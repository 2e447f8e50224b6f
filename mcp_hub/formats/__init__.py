"""Provider formats: tools, calls, results and model output in the shapes of model providers, without I/O.

In: definitions and results of MCP as decoded JSON, the calls of a model, the chunks of its streamed output.

Out: JSON values that a provider's API takes, calls and results of MCP, and normalised events of model output.

Held together by `events`, the vocabulary in which all streams of model output are read, whoever made them, and by
`records`: `ModelCall` has the arguments under the tool's own names, and all that must go back untouched.

`tools`, `calls` and `results` are the ways in; `providers` has the facts about each format. Sub-packages: `schemas`
(JSON Schema in the subset of a provider), `streams` (a reader for each provider).

A provider's SDK is never imported: all values are plain JSON, which the types of an SDK take and give.

`arguments` reads the arguments of a call, `blocks` the content of a result; `groups` are namespaces, `search` is tool
search, `connectors` are servers that a provider connects to itself; `errors` has the error. `prompted` is for models
whose calls are text.

Not here: requests to a provider, routes and commands that use these functions, and calls themselves.
"""
