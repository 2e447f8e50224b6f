"""Loading: from one configuration file to `Settings`, with all findings reported at once.

* `load`: the steps
* `texts`, `locate`: files, YAML, JSON and TOML with lines
* `interpolate`: fills in `${…}`
* `check`: runs the schema
* `overrides`: `servers.overrides.yaml`, `.mcp-hub.yaml`
* `secrets`, `public`: tell secret values from public ones
* `imported`: other clients' servers in our form
* `foreign`: recognizes their files
* `foreign_server`, `notations`: their keys and placeholders
* `foreign_limits`, `foreign_sandbox`: their limits, VS Code's sandbox
* `foreign_windows`: Windows servers for WSL
"""
