"""Scripts of a model over the tools that it may call.

* `signatures`: tools as Python functions: one line for a model, stubs for a type checker
* `tool`: `run_code`, and the names of other tools in a script
"""
