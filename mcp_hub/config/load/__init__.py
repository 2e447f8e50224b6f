"""Loading: one configuration file becomes `Settings`, with all findings reported at once.

In: a path, or the usual places and `$MCP_HUB_CONFIG`; the environment, files and the keyring that `${…}` refer to.

Out: `Loaded`: settings, the file and its stamp, secret texts, and warnings. Or one `ConfigError` with every mistake.

Held together by `load`, whose steps are the other modules. `texts` reads files with bounds, and TOML. `locate` parses
YAML or JSON and remembers the line of each value; `foreign` accepts files of other MCP clients and sets aside keys that
the hub does not know, and `imported` brings their servers into the form of ours (`foreign_server`, `foreign_limits`,
`foreign_sandbox`, `notations`); `interpolate` fills in `${…}`; `check` runs the schema and looks for names that refer
to nothing; `secrets` finds values that are secret by their place, name or form.

`foreign_windows` translates servers of clients on Windows for WSL, `overrides` adds `servers.overrides.yaml`, and
`public` tells secret values from public ones.

Not here: the meaning of the settings (`config.schema`) and watching the file for changes (`config.file_watch`).
"""
