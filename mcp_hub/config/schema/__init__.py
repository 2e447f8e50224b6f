"""The schema of `servers.yaml`: one frozen pydantic model per section.

* `settings`: the whole file
* `fields`: the base of all sections, and types of single values
* `hub`, `servers`, `defaults`: the main sections
* `tools`, `clients`, `records`: smaller ones
* `issuers`: tokens of clients
* `remote`: checks URLs and headers
* `json_schema`: the JSON Schema
"""
