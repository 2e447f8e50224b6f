"""Configuration: text, files and environment become `Settings`, or a list of every mistake with its place.

In: `servers.yaml`, or a JSON file that another MCP client wrote.

Out: frozen, validated `Settings`, the texts in them that are secret, and findings: one line each with file, line, path
and advice. No finding repeats a value, because a value may be secret.

Held together by `load` (from file to settings) and `schema` (the sections and their rules). `findings` collects
mistakes. `plan` compares two settings and lists the steps from one to the other. `quantities` reads durations and
sizes; `trust` refuses files that other users can write, `file_watch` sees a file change.

Not here: the objects that are made from settings (`app`). Nothing below `app` and `cli` reads `Settings`, and
upstreams take only a few helpers from this package.
"""
