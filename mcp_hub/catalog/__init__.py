"""The catalog: tools, resources, prompts and skills as each kind of caller sees them.

Each line imports only lines below it:

* `costs`: tokens of tools; `discovery`: `find_tools` and its companions; `trust`: approvals
* `catalog`: the current views
* `routes`: the server of a request; `search`: tools by what they do
* `views`: names, entries, lists of a client
* `pins`: changed definitions
* `resources`: URIs and skills; `texts`: text for a model; `compact`: shorter schemas
* `offers`: checked definitions and their rules
* `flags`: suspicious text; `tokens`: an estimate
"""
