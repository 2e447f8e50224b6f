"""The schema of `servers.yaml`: one frozen pydantic model per section.

* `settings`: the whole file
* `section`: the base of all sections
* `hub`, `servers`, `defaults`: the main sections
* `tools`, `clients`: smaller ones
* `issuers`: tokens of clients
* `remote`: checks URLs and headers
* `scalars`: durations, sizes, flags, names
* `json_schema`: the JSON Schema
"""
