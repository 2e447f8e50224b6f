"""The composition root: settings become a running hub, and a reload changes it. Only `app` and `cli` read `Settings`.

* `build`: creates and closes all parts
* `http`: the HTTP front
* `limits`, `catalog_rules`, `upstream_factory`, `logins`: settings as the parts take them
* `start_folders`: where servers start
* `reload`, `apply`, `upstream_set`: changed settings
* `admin`, `status`: an operator's commands, and the hub's state
* `readiness`: waits for servers
* `telemetry`, `tracing`: OpenTelemetry
* `attached`: the background hub
* `dashboard`: shows and changes the hub
"""
