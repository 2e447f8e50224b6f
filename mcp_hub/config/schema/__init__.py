"""The schema of `servers.yaml`: one frozen pydantic model per section.

In: plain data after interpolation.

Out: `Settings`, in which durations are seconds (float) and sizes are bytes (int); or pydantic errors that
`config.load.check` turns into findings.

Held together by `settings`, the whole file, and `section`, the base of every section: frozen, strict about unknown
keys. `hub`, `servers`, `tools`, `filters`, `defaults`, `clients`, `oauth`, `issuers`, `remote` and
`telemetry` are the sections; `scalars` are single values such as durations and names.

A key whose change needs no restart is marked by `AtOnce` (`config.plan`).

`overrides` is the schema of the files beside it. `json_schema` generates the JSON Schema for editors.

Not here: lines and files (`config.load`), checks across sections, and any object that does work.
"""
