"""The catalog: all tools, resources, prompts and skills that the hub offers, as each kind of caller sees them.

In: one `Snapshot` per server, the raw definitions that it listed last, and the rules that the settings give for it.

Out: a `CatalogView`, immutable and the same for the same input in any order. Lists are pages of it; calls and reads
find their server by looking a name up in it, never by splitting the name.

Held together by `catalog`, which holds the current view of each profile and builds a new one when somebody asks after
a change. Each line imports only lines below it:

* `costs`: the tokens of all tools, in every way to list them
* `discovery`: `find_tools`, `read_tool` and `run_tool`; `trust`: what was approved, what looks dangerous
* `catalog`
* `routes`: from a request to one for its server; `search`: tools by what they do
* `views`: names, entries, the view, and what of it a client is listed
* `pins`: definitions that have changed
* `resources`: URIs, and skills; `texts`: words for a model; `compact`: shorter schemas
* `offers`: definitions that are checked, and the rules for them; `flags`: suspicious text; `tokens`: an estimate

Not here: asking servers for their lists (`upstreams.lists`), running calls (`calls`), and reading settings (`app`).
"""
