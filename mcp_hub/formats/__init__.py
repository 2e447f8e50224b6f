"""Provider formats: tools, calls, results and model output in the shapes of model providers. No I/O, no SDK.

* `tools`: to and from MCP; groups, tool search
* `calls`: calls and results, to and from MCP
* `providers`: the table of formats, and connectors: servers that a provider connects to
* `provider`: the form of an entry
* `anthropic`, `gemini`, `interactions` (Gemini), `openai` (chats), `responses` (OpenAI): what only one API has
* `reader`: streamed output of models
* `prompted`: models whose calls are text
* `schemas`: JSON Schema for a provider
* `arguments`: of calls
* `results`: their content, and what providers take
* `records`: shared types; the events of streamed output
"""
