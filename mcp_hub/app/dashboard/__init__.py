"""The hub as the dashboard shows and changes it, for `fronts.dashboard`.

* `watch`: what a caller may see
* `curation`: what an operator may change
* `approvals`: waiting tools
* `overrides`: writes `servers.overrides.yaml`
* `settings`: the configuration with origins
* `edits`: changes servers
* `raw`: a server's messages
* `past_calls`: the call history
* `installs`: the hub in clients
* `logins`: logins to remote servers
* `seen`: clients and calls
"""
