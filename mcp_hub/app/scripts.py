"""Folders of scripts as servers, and the tools that they may use."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from mcp_hub.call import Gate
from mcp_hub.calls.code.runs import CodeRuns
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.code.tool import python_names
from mcp_hub.notices import Notices

if TYPE_CHECKING:
    from mcp_hub.upstreams.scripts.upstream import ScriptUpstream


def script_upstreams(
    catalog: Catalog, changes: Notices, env: Mapping[str, str], runs: Callable[[], CodeRuns]
) -> Callable[[str, str, Gate | None], "ScriptUpstream"]:
    """Makes the upstream of a name and a folder."""
    folders: set[str] = set()
    read_only = partial(_read_only, catalog, folders)

    def make(name: str, folder: str, gate: Gate | None) -> "ScriptUpstream":
        from mcp_hub.upstreams.scripts.upstream import ScriptUpstream

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
