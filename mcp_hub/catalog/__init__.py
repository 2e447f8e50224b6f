"""The catalog: tools, resources, prompts and skills as each kind of caller sees them.

Each line imports only lines below it:

* `token_costs`: what tools cost a model, in each list mode
* `discovery`: `find_tools` and its companions; `trust`: approvals
* `catalog`: the current views, and a search index for each
* `routes`: the server of a request; `search`: tools by what they do
* `views`: names, entries, lists of a client
* `pins`: changed definitions
* `resources`: URIs and skills; `texts`: text for a model; `compact`: shorter schemas with the same verdicts
* `offers`: checked definitions and their rules
* `flags`: suspicious text; `tokens`: an estimate
"""
