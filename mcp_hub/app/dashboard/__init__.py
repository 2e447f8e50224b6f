"""The hub as the dashboard shows and changes it, for `fronts.dashboard`.

* `watch`: what a caller may see
* `curation`: an operator's changes; waiting tools, logins, the hub in clients
* `overrides`: writes `servers.overrides.yaml`
* `edits`: shows the configuration, changes servers
* `past_calls`: the call history
* `seen`: clients and calls, and on request a server's messages
"""
