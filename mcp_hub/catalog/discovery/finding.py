"""One call of `find_tools`."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import anyio.to_thread
import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.catalog.discovery.answers import Detail, answer, exact, listing, overview
from mcp_hub.catalog.discovery.meta_tools import text_result
from mcp_hub.catalog.discovery.servers import ServerAbout, is_starting, why_absent
from mcp_hub.catalog.search.ranker import SearchAnswer
from mcp_hub.catalog.texts.definitions import FIND
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.errors import InvalidParams
from mcp_hub.events import Completed
from mcp_hub.masking import hide_head
from mcp_hub.types import Kind, UpstreamStatus

MOST_HITS: Final = 50
_HITS: Final = 8
_REASON: Final = 200  # characters of what is wrong with arguments, which may repeat some


class _Find(msgspec.Struct, forbid_unknown_fields=True):
    query: str | None = None
    server: str | None = None
    limit: int | str | None = None
    detail: str | None = None


class ToolFinder(msgspec.Struct, frozen=True):
    """One caller's scope: the view without the hub's own tools, and `search(query, limit, server)`.

    `budget` is in tokens; `absent`: servers without lists.
    """

    view: CatalogView
    search: Callable[[str, int, str | None], Awaitable[SearchAnswer]]
    budget: int
    servers: Sequence[ServerAbout]
    absent: Sequence[UpstreamStatus]


def finding(finder: Callable[[], Awaitable[ToolFinder]]) -> CallHandler:
    """Runs one call of `find_tools`."""

    async def answered(call: Call, channel: CallChannel) -> Completed:
        try:
            return text_result(await _answer(_arguments(call), await finder()))
        except InvalidParams as problem:
            return text_result(f"{FIND}: {problem}", is_error=True)

    return answered


def _arguments(call: Call) -> _Find:
    try:
        request = msgspec.json.decode(call.params.get("arguments", b"{}"), type=_Find, strict=False)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        names = ", ".join(_Find.__struct_fields__)
        raise InvalidParams(f"wrong arguments: {hide_head(str(problem), _REASON)}. Known arguments: {names}.") from None
    if request.detail not in (None, "", "brief", "full"):
        raise InvalidParams(f'wrong arguments: `detail` is "brief" or "full", not {hide_head(request.detail, 50)!r}.')
    return request


def _limit(limit: int | str | None) -> int:
    """0: no limit. Models may write numbers as text."""
    if not limit:
        return 0
    text = str(limit)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidParams(f"wrong arguments: `limit` is a number from 1 to {MOST_HITS}, not {hide_head(text, 50)!r}.")
    return min(max(int(text), 1), MOST_HITS)


async def _answer(request: _Find, finder: ToolFinder) -> str:
    limit, detail, budget = _limit(request.limit), _detail(request), finder.budget
    query, server = (request.query or "").strip(), request.server or None
    tools = finder.view.entries(Kind.TOOL)
    down = {status.server for status in finder.absent}
    servers = Counter(entry.server for entry in tools)
    if server is not None and server not in servers:
        raise InvalidParams(_no_server(server, finder))
    if entry := finder.view.find(Kind.TOOL, query):
        return await anyio.to_thread.run_sync(partial(exact, entry.raw, is_read_only=entry.is_read_only))
    raws = {entry.exported: entry.raw for entry in tools if server in (None, entry.server)}
    reads = {entry.exported for entry in tools if entry.is_read_only}
    if query:
        results = await finder.search(query, limit or _HITS, server)
        up = {name: count for name, count in servers.items() if name not in down}
        text = partial(
            answer, results, raws, up, detail=detail, limit=limit or _HITS, budget_tokens=budget, reads=reads
        )
    elif server is not None:
        text = partial(listing, raws, detail=detail, limit=limit, budget_tokens=budget, reads=reads)
    else:
        text = partial(overview, finder.servers, budget)
    # a stranger's schema may take long to be compacted
    body = await anyio.to_thread.run_sync(text) if detail == "full" else text()
    return "\n".join([body, *why_absent(finder.absent)])


def _detail(request: _Find) -> Detail:
    return "full" if request.detail == "full" else "brief"


def _no_server(name: str, finder: ToolFinder) -> str:
    for status in finder.absent:
        if status.server == name:
            if is_starting(status):
                return f'Server "{name}" is starting, so its tools are not known yet. Search again in a few seconds.'
            code = f" ({status.code})" if status.code else ""
            return f'Server "{name}" has failed{code}, so its tools are not known. Use another server.'
    names = ", ".join(server.name for server in finder.servers if server.tools) or "none"
    return "\n".join([f"There is no server {hide_head(name, 100)!r}. Servers: {names}.", *why_absent(finder.absent)])
