"""Servers as a registry describes them: a `server.json` becomes an entry of `servers.yaml`.

In: a file, a URL, or the name of a server in the registry that `hub.registry` names; values that a person gives.

Out: an entry with the exact command line or URL, or `ConfigError` with the values that are missing.

Held together by `server_json`, which is pure: it chooses a package that can be started here, or a remote, and fills in
arguments, variables and headers. `dangers` finds what the command could run besides the package, and which environment
variables decide that. `fetch` reads the document, with bounds.

The document is of a stranger: a `${…}` in it stays text, so that nothing is looked up on this machine, and only known
programs are started. Not here: asking a person (`cli.commands.servers`).
"""
