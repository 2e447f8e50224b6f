"""Definitions in lists, and results, as clients read them: what their schemas refuse, and what of it can be put right.

In: the members of one definition, encoded, and its kind; or the result of a call, or the params of a question or log
message, and its method.

Out: a verdict with its reason, or the members or the result in a form that every client reads.

Held together by `models`, the strictest schemas of clients; what decodes into them is never changed. `repair` changes
in definitions what loses nothing, `messages` in results, questions and log messages. `output_schemas` says why a client
could not compile a tool's output schema, or a regular expression in it, which breaks its whole list.

Everything here is pure.

Not here: names, duplicates, depth and the place in a list (`catalog.offers`), what one era does not have
(`catalog.offers.definitions.in_era`), and schemas in the forms of model providers (`formats`).
"""
