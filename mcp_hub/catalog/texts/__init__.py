"""Texts for a model: foreign text made harmless, a tool on one line, and the definitions of the meta-tools.

In: texts and schemas of servers, names of tools and servers.

Out: short text, bounded in characters or tokens.

Held together by: `plain_text`, one line, bounded, nothing invisible; `signatures`, a tool with its parameters on one
line; `definitions`, those of `find_tools`, `read_tool`, `run_tool` and `read_result`.

Everything here is pure. Not here: the tools themselves (`catalog.discovery`), shorter schemas (`catalog.compact`).
"""
