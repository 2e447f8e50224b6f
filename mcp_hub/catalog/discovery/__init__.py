"""Discovery: `find_tools`, `read_tool` and `run_tool`, for tools that a model was not listed.

In: a caller's view, a query or call.

Out: short text, or the unwrapped call.

* `meta_tools`: runs `find_tools`, unwraps the others
* `answers`: the answers of `find_tools`; servers in few words
* `capabilities`: what the servers have, for the hub's capabilities
"""
