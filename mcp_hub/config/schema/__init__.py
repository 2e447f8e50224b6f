"""The schema of `servers.yaml`: one frozen pydantic model per section.

* `settings`: the whole file
* `section`: the base of all sections
* `hub`, `servers`, `defaults`: the main sections
* `tools`, `filters`, `clients`, `telemetry`: smaller ones
* `oauth`, `issuers`: logins to servers, tokens of clients
* `remote`: checks URLs and headers
* `scalars`: single values
* `overrides`: the files beside it
* `json_schema`: the JSON Schema
"""
