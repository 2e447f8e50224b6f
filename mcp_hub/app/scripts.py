"""Folders of scripts as servers: the tools that they may use, and findings about them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

import msgspec

from mcp_hub.call import Gate
from mcp_hub.calls.code.runs import CodeRuns
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.code.tool import python_names
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigFinding
from mcp_hub.notices import Notices
from mcp_hub.types import RawJson
from mcp_hub.upstreams.scripts.source import findings_of, read_folder
from mcp_hub.upstreams.scripts.upstream import ScriptUpstream


def script_upstreams(
    catalog: Catalog, changes: Notices, env: Mapping[str, str], runs: Callable[[], CodeRuns]
) -> Callable[[str, str, Gate | None], ScriptUpstream]:
    """Makes the upstream of a name and a folder."""
    folders: set[str] = set()
    read_only = partial(_read_only, catalog, folders)

    def make(name: str, folder: str, gate: Gate | None) -> ScriptUpstream:
        folders.add(name)
        return ScriptUpstream(name, folder, changes, env=env, runs=runs, read_only=read_only, gate=gate)

    return make


def _read_only(catalog: Catalog, folders: set[str]) -> Mapping[str, bool] | None:
    if not folders.issuperset(catalog.starting(None)):
        return None
    tools = catalog.view(None).usable_tools
    return _by_python_name(tuple((tool.exported, tool.is_read_only, tool.server in folders) for tool in tools))


@lru_cache(4)
def _by_python_name(tools: tuple[tuple[str, bool, bool], ...]) -> Mapping[str, bool]:
    """Whether each tool only reads; without scripts, which no script can call."""
    names = python_names(exported for exported, _, _ in tools)
    return {names[exported]: only_reads for exported, only_reads, is_script in tools if not is_script}


class _Named(msgspec.Struct):
    name: str


def script_findings(
    settings: Settings, env: Mapping[str, str], definitions: Sequence[RawJson] | None = None
) -> Iterator[ConfigFinding]:
    """Findings about scripts of enabled servers. With all `definitions`: also names of tools that do not exist."""
    folders = [server.scripts for server in settings.servers.values() if server.enabled and server.scripts is not None]
    if not folders:
        return
    tools = None
    if definitions is not None:
        tools = set(python_names(msgspec.json.decode(raw, type=_Named).name for raw in definitions).values())
    for folder in folders:
        try:
            scripts = read_folder(folder, env, {})
        except OSError:
            continue  # it is a finding already that it cannot be read
        unknown = {
            name: [] if tools is None else [used for used in script.names if used not in tools]
            for name, script in scripts.items()
        }
        yield from findings_of(folder, scripts, unknown)
