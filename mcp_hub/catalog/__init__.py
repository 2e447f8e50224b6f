"""The catalog: all tools, resources, prompts and skills that the hub offers, as each kind of caller sees them.

In: one `Snapshot` per server, the raw definitions that it listed last, and the rules that the settings give for it.

Out: a `CatalogView`, immutable and the same for the same input in any order. Lists are pages of it; calls and reads
find their server by looking a name up in it, never by splitting the name.

Held together by `catalog`, which holds the current view of each profile and builds a new one when somebody asks after
a change. `view` builds it out of `entries`: `definitions` checks each definition, `names` assigns exported names,
`filters`, `overrides` and `rules` are what the settings say, `hints` decides whose hints of a tool count, `exposure`
selects what a client is listed, `routes` turns a request into one for its server. `exported` remembers the names of
tools that were removed. `pins` and `flags` describe changed and suspicious definitions.

Sub-packages: `resources` (URIs), `skills`, `apps` (tools with a user interface), `search`, `discovery` (`find_tools`,
`read_tool`, `run_tool`), `compact` (schemas), `trust`.

Not here: asking servers for their lists (`upstreams.lists`), running calls (`calls`), and reading settings (`app`).
"""
