"""Discovery: `find_tools`, `read_tool` and `run_tool`, with which a model uses tools that it was not listed.

In: the view of a caller, a query or a call of `run_tool` or `read_tool`, and hits from `catalog.search`.

Out: short text for the model, and for these two the call that they stand for, unwrapped before routing, so that
progress, questions and cancellation are those of the tool itself.

`finding` runs a call of `find_tools`, `answers` writes its answer. `meta_tools` finds the call that one of `run_tool`
and `read_tool` stands for, and explains a refusal by what the tool takes. `servers` describes servers, and introduces
the hub to a client.

Not here: the definitions of these tools (`catalog.texts`), ranking (`catalog.search`), shorter schemas
(`catalog.compact`), and the decision which clients get these tools (`catalog.views`).
"""
