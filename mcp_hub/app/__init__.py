"""The composition root: settings become a running hub, and a reload changes it. Only `app` and `cli` read `Settings`.

* `build`: creates and closes all parts
* `http`: the HTTP front
* `limits`, `catalog_rules`, `upstream_factory`, `logins`: settings for the parts
* `accounts`: accounts of principals
* `code_runs`: tools for scripts; folders of scripts
* `reload`, `apply`: changed settings
* `gates`: rules for calls
* `status`: state and an operator's commands
* `readiness`: where servers start, and waits for them
* `telemetry`, `tracing`: OpenTelemetry
* `attached`: the background hub
* `dashboard`: shows and changes the hub
"""
