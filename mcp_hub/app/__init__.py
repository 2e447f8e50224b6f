"""The composition root: settings become a running hub, and a reload changes it. Only `app` and `cli` read `Settings`.

* `build`: creates and closes all parts
* `http`: the HTTP front
* `limits`, `catalog_rules`, `upstream_factory`, `logins`: settings as the parts take them
* `code_runs`: the tools of a session for scripts; folders of scripts
* `start_folders`: where servers start
* `reload`, `apply`: changed settings
* `gates`: rules for calls
* `status`: the hub's state, and an operator's commands
* `readiness`: waits for servers
* `telemetry`, `tracing`: OpenTelemetry
* `attached`: the background hub
* `dashboard`: shows and changes the hub
"""
