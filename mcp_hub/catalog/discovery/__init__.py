"""Discovery: `find_tools`, `read_tool` and `run_tool`, for tools that a model was not listed.

In: a caller's view, a query or call.

Out: short text, or the unwrapped call.

* `finding`: one call of `find_tools`
* `answers`: its answer
* `meta_tools`: unwraps the others
* `servers`: descriptions, instructions
"""
