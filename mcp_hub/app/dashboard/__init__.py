"""The hub as the dashboard asks for it: what can be seen by whom, and what an operator may change.

In: an open hub (`app.build`), the clients that were seen and the calls that ended, and the caller of each request.

Out: states, approvals, overrides and settings in the shapes of `protocol.rest.overview`, for `fronts.dashboard`, whose
protocols `HubView` and `HubOperator` this package implements.

Held together by `watch.HubWatch`, which decides what a caller may see, and `curation.HubCuration`, which changes
things: only callers without a profile come there. `approvals` compares the records of tools, `overrides` writes
`servers.overrides.yaml`, `settings` lists the configuration with the origin of each value, `edits` changes servers by
the editor that `cli` hands in, where nobody but this machine reaches the hub. `raw` has the messages of one server
for five minutes.

`past_calls` shows the history of calls and makes its journal from the settings; commands use it without a hub, too.

`installs` looks up the install state of clients, `logins` runs logins to remote servers, `seen` observes clients and
calls.

Not here: HTTP and tokens (`fronts.dashboard`), and restarts and reloads (`app.admin`).
"""
