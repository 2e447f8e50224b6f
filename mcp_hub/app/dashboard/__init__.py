"""The hub as the dashboard shows and changes it, for `fronts.dashboard`.

* `watch`: what a caller may see
* `curation`: what an operator may change, logins, the hub in clients
* `approvals`: waiting tools
* `overrides`: writes `servers.overrides.yaml`
* `edits`: the configuration with origins, changes servers
* `raw`: a server's messages
* `past_calls`: the call history
* `seen`: clients and calls
"""
