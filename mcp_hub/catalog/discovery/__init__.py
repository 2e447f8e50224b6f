"""Discovery: `find_tools`, `read_tool` and `run_tool`, with which a model uses tools that it was not listed.

In: the view of a caller, a query or a call of `run_tool` or `read_tool`, and hits from `catalog.search`.

Out: short text for the model, and for these two the call that they stand for, unwrapped before routing, so that
progress, questions and cancellation are those of the tool itself.

`definitions` writes the definitions of the meta-tools. `finding` runs a call of `find_tools`, `answers` writes its
answer, `signatures` a tool on one line, `servers` a server. `meta_tools` finds the call that one of `run_tool` and
`read_tool` stands for. `instructions` composes the text that introduces the hub to a client. `arguments` recognizes
arguments that were probably wrong, so that a refusal can explain what the tool takes. `plain_text` makes foreign text
harmless: one line, bounded, nothing invisible.

Not here: ranking (`catalog.search`), shorter schemas (`catalog.compact`), and the decision which clients get these
tools (`catalog.exposure`).
"""
