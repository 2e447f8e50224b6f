"""Offers: the definitions that servers list, checked, and the rules of the settings for them.

In: the raw definitions of one list of a server, and settings as plain values.

Out: `Definition`s that can be listed, those that are held back as broken, and the same ones as an override has them.

Held together by `definitions`, which checks each definition. `hints` decides whose hints of a tool count, `filters`
which definitions are let through, `rules` has the settings of a tool, a server and a caller, and applies overrides.
`apps` are the members of `_meta` by which a tool has a user interface (MCP Apps, `io.modelcontextprotocol/ui`,
specification of 2026-01-26).

Everything here is pure. Not here: exported names and the order of lists (`catalog.views`), changes of a definition
(`catalog.pins`).
"""
