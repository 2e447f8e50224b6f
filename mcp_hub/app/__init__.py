"""The composition root: settings become a running hub, and new settings become the same hub changed.

In: validated `Settings` (`config`), a state folder, and the choice of a front. Later: new settings from a reload, and
the commands of an operator (`admin`).

Out: an open hub (`build.open_app`), its HTTP application (`http`), and its state for health, metrics and REST
(`status`).

Held together by `build`, which creates every part and closes it again in the reverse order. `limits`, `catalog_rules`,
`upstream_factory` and `logins` translate settings into the values that the parts take, `start_folders` decides where a
server starts. A reload is read, planned (`config.plan`) and applied between two steps of the event loop: `reload` and
`config.file_watch` find the change, `apply` and `upstream_set` make it. `telemetry` and `tracing` add OpenTelemetry
where the settings ask for it.

Only this package and `cli` read `Settings`; every other part receives the two or three values that it needs.

Sub-packages: `attached` (the background hub of clients over stdio), `dashboard` (what it shows and changes).
`readiness` waits until the servers have settled.

Not here: any behaviour of a call, and reading files (`config.load`).
"""
