"""The schema of `servers.yaml`: one frozen pydantic model per section.

* `settings`: the whole file
* `fields`: the base of all sections, types of single values, checks of URLs and headers
* `hub`, `servers`, `defaults`: the main sections
* `tools`, `clients`, `records`: smaller ones
* `issuers`: tokens of clients
* `json_schema`: the JSON Schema
"""
