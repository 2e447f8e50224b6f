"""The texts of the artefacts, from the facts. Pure.

Sources: the MCPB manifest 0.4 (modelcontextprotocol/mcpb), the registry's `server.json` of 2025-12-11, and the plugin
formats of Claude Code, Codex, Cursor, Gemini CLI and Goose, as of November 2026.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.types import JsonObject
from rigs.dist.facts import Facts

MCPB: Final = "mcpb"
"""The folder of the bundle, which becomes a zip file."""
_PLUGINS: Final = "plugins"
_SHOWN: Final = 100
"""Characters of a description in the registry."""

_MAIN = '''"""Starts the hub that `pyproject.toml` beside this names, for Claude Desktop."""

import sys

from mcp_hub.cli import main

main(sys.argv[1:] or ["serve", "--client", "claude-desktop", "--config", "@user"])
'''


def documents(facts: Facts) -> Mapping[str, str]:
    """Every text by its path in `dist/`."""
    made: dict[str, object] = {
        f"{MCPB}/manifest.json": mcpb_manifest(facts),
        "server.json": registry_entry(facts),
        f"{_PLUGINS}/.claude-plugin/marketplace.json": claude_marketplace(facts),
        f"{_PLUGINS}/.agents/plugins/marketplace.json": codex_marketplace(facts),
        f"{_PLUGINS}/plugins/{facts.name}/.mcp.json": {"mcpServers": {facts.name: _entry(facts)}},
        f"{_PLUGINS}/plugins/{facts.name}/.claude-plugin/plugin.json": _plugin(facts),
        f"{_PLUGINS}/plugins/{facts.name}/.codex-plugin/plugin.json": codex_plugin(facts),
        # Cursor prunes files that the manifest does not declare
        f"{_PLUGINS}/plugins/{facts.name}/.cursor-plugin/plugin.json": {**_plugin(facts), "mcpServers": "./.mcp.json"},
        f"gemini/{facts.name}/gemini-extension.json": gemini_extension(facts),
        f"goose/.agents/plugins/{facts.name}/.mcp.json": {"mcpServers": {facts.name: _entry(facts)}},
    }
    texts = {path: msgspec.json.format(msgspec.json.encode(own), indent=2).decode() + "\n" for path, own in made.items()}
    texts[f"{MCPB}/pyproject.toml"] = _bundled_project(facts)
    texts[f"{MCPB}/server/main.py"] = _MAIN
    texts[f"{_PLUGINS}/plugins/{facts.name}/README.md"] = _plugin_readme(facts)
    return dict(sorted(texts.items()))


def mcpb_manifest(facts: Facts) -> JsonObject:
    """Claude Desktop ships its own uv, which installs the hub; the entry survives when the app rewrites its file."""
    run = ["run", "--directory", "${__dirname}", "server/main.py"]
    return {
        "manifest_version": "0.4",
        "name": facts.name,
        "display_name": facts.display_name,
        "version": facts.version,
        "description": facts.description,
        "author": {"name": facts.author},
        "license": facts.license,
        "keywords": facts.keywords,
        "server": {
            "type": "uv",
            "entry_point": "server/main.py",
            "mcp_config": {
                "command": "uv",
                "args": [*run, "serve", "--client", "claude-desktop", "--config", "${user_config.config}"],
            },
        },
        "user_config": {
            "config": {
                "type": "file",
                "title": "servers.yaml",
                "description": "The file with your servers. `mcp-hub init` makes one.",
                "required": True,
            }
        },
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": facts.python}},
    }


def _bundled_project(facts: Facts) -> str:
    """The bundle has the hub's name and version only: uv installs it, with wheels for the machine that it is on."""
    return (
        f'[project]\nname = "{facts.name}-bundle"\nversion = "{facts.version}"\n'
        f'requires-python = "{facts.python}"\ndependencies = ["{facts.name}=={facts.version}"]\n\n'
        "[tool.uv]\nenvironments = [\"sys_platform == 'darwin'\", \"sys_platform == 'linux'\"]\n"
    )


def registry_entry(facts: Facts) -> JsonObject:
    """The entry of the MCP registry; the README of the package has the same name, as the proof that it is ours."""
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": facts.registry_name,
        "title": facts.display_name,
        "description": facts.description[:_SHOWN],
        "version": facts.version,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": facts.name,
                "version": facts.version,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [
                    {"type": "positional", "value": "serve"},
                    {
                        "type": "named",
                        "name": "--config",
                        "value": "{config}",
                        "variables": {
                            "config": {
                                "description": "The servers.yaml with your servers; @user is the one in your "
                                "configuration folder.",
                                "format": "filepath",
                                "default": "@user",
                            }
                        },
                    },
                ],
            }
        ],
    }


def claude_marketplace(facts: Facts) -> JsonObject:
    """Claude Code refuses MCP servers of type uv, so the plugin starts uvx."""
    own = {"name": facts.name, "source": f"./plugins/{facts.name}", "version": facts.version}
    plugin = {**own, "description": facts.description, "category": "development"}
    return {"name": facts.name, "owner": {"name": facts.author}, "plugins": [plugin]}


def codex_marketplace(facts: Facts) -> JsonObject:
    return {
        "name": facts.name,
        "interface": {"displayName": facts.display_name},
        "plugins": [
            {
                "name": facts.name,
                "source": {"source": "local", "path": f"./plugins/{facts.name}"},
                "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                "category": "Developer Tools",
            }
        ],
    }


def codex_plugin(facts: Facts) -> JsonObject:
    interface = {
        "displayName": facts.display_name,
        "shortDescription": "All your MCP servers behind one",
        "longDescription": facts.description,
        "developerName": facts.author,
        "category": "Developer Tools",
        "capabilities": ["Read", "Write"],
    }
    return {**_plugin(facts), "mcpServers": "./.mcp.json", "interface": interface}


def gemini_extension(facts: Facts) -> JsonObject:
    return {
        "name": facts.name,
        "version": facts.version,
        "description": facts.description,
        "mcpServers": {facts.name: _entry(facts)},
    }


def _plugin(facts: Facts) -> JsonObject:
    return {
        "name": facts.name,
        "version": facts.version,
        "description": facts.description,
        "author": {"name": facts.author},
        "license": facts.license,
        "keywords": facts.keywords,
    }


def _entry(facts: Facts) -> JsonObject:
    command, *args = facts.command
    return {"command": command, "args": args}


def _plugin_readme(facts: Facts) -> str:
    return (
        f"# {facts.display_name}\n\n{facts.description}.\n\n"
        f"The plugin starts `{' '.join(facts.command)}`: version {facts.version} of the hub, with the `servers.yaml` in "
        "your own configuration folder (`$MCP_HUB_CONFIG` names another one). A file in the project is not read. It needs "
        "`uv`. Make the file with `mcp-hub init`; see what is wrong with `mcp-hub doctor`.\n"
    )
