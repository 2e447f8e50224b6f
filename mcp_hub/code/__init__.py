"""Scripts of a model over the tools that it may call.

* `signatures`: tools as Python functions: one line for a model, stubs for a type checker; `names`: their names
"""
