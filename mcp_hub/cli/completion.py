"""Values for shell completion, from the configuration, the last lists and the store."""

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click
from click.shell_completion import CompletionItem

from mcp_hub.errors import ConfigError, RpcError
from mcp_hub.types import Kind

if TYPE_CHECKING:
    from mcp_hub.config.load.load import Loaded

VARIABLE: Final = "_MCP_HUB_COMPLETE"
"""The variable that shell scripts set to ask for completions."""
_MOST: Final = 200
"""Streams that are offered."""


def _completing(
    values: Callable[["Loaded"], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere), redirect_stdout(nowhere):
            try:
                loaded = _loaded(ctx.params.get("config"))
                candidates = [] if loaded is None else sorted(values(loaded))
            except (ConfigError, RpcError, OSError, ValueError):
                candidates = []
        return [CompletionItem(value) for value in candidates if value.startswith(incomplete) and value.isprintable()]

    return complete


def _loaded(config: str | None) -> "Loaded | None":
    from mcp_hub.attach.arguments import state_folder
    from mcp_hub.config.load.load import find_config, load
    from mcp_hub.config.trust import check_state
    from mcp_hub.files import LARGEST_OWN, read_file

    check_state([Path(state_folder(os.environ))], os.environ)
    path = find_config(config, Path.cwd(), os.environ)
    if b"${keyring:" in read_file(path, LARGEST_OWN).data:  # it could ask a person for its password
        return None
    return load(path, os.environ, partly=True)


def _servers(loaded: "Loaded") -> Iterable[str]:
    return loaded.settings.servers


def _profiles(loaded: "Loaded") -> Iterable[str]:
    return loaded.settings.profiles


def _clients(loaded: "Loaded") -> Iterable[str]:
    from mcp_hub.config.schema.clients import BUILT_IN_CLIENTS

    return {*BUILT_IN_CLIENTS, *loaded.settings.hub.clients}


def _exported(kind: Kind) -> Callable[["Loaded"], Iterable[str]]:
    def names(loaded: "Loaded") -> Iterable[str]:
        from mcp_hub.app.catalog_rules import view_rules
        from mcp_hub.app.upstream_factory import last_lists
        from mcp_hub.catalog.views.view import build
        from mcp_hub.config.trust import state_dir

        lists = last_lists(loaded.settings, state_dir(os.environ) / "lists")
        return [entry.exported for entry in build(lists, view_rules(loaded.settings)[None]).entries(kind)]

    return names


def _streams(loaded: "Loaded") -> Iterable[str]:
    from mcp_hub.cli.access.local_streams import open_streams

    async def ids() -> list[str]:
        async with open_streams(loaded) as access:
            return [status.stream for status in await access.streams(_MOST)]

    return anyio.run(ids)


def applications(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of other clients."""
    from mcp_hub.onboarding.clients.table import CLIENTS, WINDOWS_CLIENTS
    from mcp_hub.onboarding.clients.wsl import is_wsl

    names = [*CLIENTS, *(WINDOWS_CLIENTS if is_wsl(os.environ) else ())]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def sources(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [*applications(ctx, param, incomplete), CompletionItem(incomplete, type="file")]


servers: Final = _completing(_servers)
profiles: Final = _completing(_profiles)
clients: Final = _completing(_clients)
streams: Final = _completing(_streams)
tools: Final = _completing(_exported(Kind.TOOL))
prompts: Final = _completing(_exported(Kind.PROMPT))
resources: Final = _completing(_exported(Kind.RESOURCE))
