"""Texts for a model: harmless, on one line, bounded. Pure.

In: texts and schemas of servers.

Out: text bounded in characters or tokens.

* `definitions`: the meta-tools
* `plain_text`: one line, nothing invisible
* `signatures`: a tool with its parameters

Not here: the tools themselves (`catalog.discovery`).
"""
