"""`make dist`: every artefact in which the hub is distributed, from one source, and the proof that it works.

In: `pyproject.toml`, with the table `tool.mcp-hub` for what it lacks, and the sources.

Out: in `dist/`, wheel and sdist, the bundle for Claude Desktop (`.mcpb`), `server.json` for the MCP registry, plugins for
Claude Code, Codex and Cursor with their marketplaces, the extension for Gemini CLI, the files for Goose.

Held together by `facts`, from which `documents` makes every text: pure functions, compared with a golden file by the
tests. `checks` finds what disagrees. `build` calls the build backend, `proof` installs the wheel from a folder of wheels,
without network, and speaks MCP to it; `outside` runs the linters of others, and asks a package
index for wheels for every system.

Not here: Dockerfile and compose file, which are sources; units for systemd and launchd (`mcp-hub service`).
"""
