"""Estimated tokens that tools cost a model, in each list mode; each text is measured once."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.compact import compact_tool
from mcp_hub.catalog.discovery.answers import instructions
from mcp_hub.catalog.offers.definitions import in_era
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.texts import all_names, signature
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.entries import Entry, by_server
from mcp_hub.catalog.views.exposure import decided, exposed
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.protocol.rest.servers import HEAVIEST, ModeTokens, ServerTokens, TokenAccount, Tokens, ToolTokens
from mcp_hub.types import ClientKind, Era, Expose, Kind

_EXPOSES: Final[tuple[Expose, ...]] = ("full", "search", "names", "auto")
_ERA: Final = Era.HANDSHAKE  # that of most clients; the other one differs in a few members of few definitions
_MOST_COMPACTED: Final = 1 << 23  # bytes compacted for one account, ten times those of 611 real tools (0.6 s)
_REMEMBERED: Final = 1 << 16  # texts whose tokens are remembered: some 10 MB


class _CostQuery(msgspec.Struct, frozen=True):
    """The subject of an account.

    `starting`: never-listed servers. `server`: the only one to count in `total`. `heaviest`: how many to name.
    """

    client: str = ""
    profile: str | None = None
    starting: Sequence[str] = ()
    server: str | None = None
    heaviest: int = HEAVIEST
    instructions: str = ""


class _Measures:
    """Token counts by digest; cleared above 65,536 entries."""

    def __init__(self) -> None:
        self._cache: dict[tuple[bytes, str | None], tuple[int, ...]] = {}
        self._budget = 0

    def start(self) -> None:
        self._budget = _MOST_COMPACTED

    def tokens(self, raw: bytes) -> int:
        key = (_digest(raw), None)
        counts = self._cache.get(key)
        if counts is None:
            counts = self._keep(key, (estimate(raw),))
        return counts[0]

    def of(self, entry: Entry) -> Tokens:
        """Tokens of a tool without its name; above the byte budget nothing is compacted."""
        raw = in_era(Kind.TOOL, entry.raw, _ERA)
        full = self.tokens(raw)
        key = (_digest(raw), entry.exported)
        counts = self._cache.get(key)
        if counts is None:
            line = estimate(signature(entry.exported, raw))
            if len(raw) > self._budget:
                return Tokens(full, full, line)
            self._budget -= len(raw)
            counts = self._keep(key, (estimate(compact_tool(raw)), line))
        return Tokens(full, *counts)

    def _keep(self, key: tuple[bytes, str | None], counts: tuple[int, ...]) -> tuple[int, ...]:
        if len(self._cache) >= _REMEMBERED:
            self._cache.clear()
        self._cache[key] = counts
        return counts


def _digest(raw: bytes) -> bytes:
    return blake2b(raw, digest_size=16).digest()


_ALL: Final = _CostQuery()


def account(
    view: CatalogView, rules: ViewRules, client: ClientKind, query: _CostQuery = _ALL, measures: _Measures | None = None
) -> TokenAccount:
    """The account of a view's tools for a client, without the hub's own. Never raises."""
    measures = _Measures() if measures is None else measures
    measures.start()
    view = view.for_model
    tools = _tools([entry for entry in view.entries(Kind.TOOL) if query.server in (None, entry.server)], measures)
    modes = tuple(_mode(expose, view, rules, client, bool(query.starting), measures) for expose in _EXPOSES)
    expose = client.expose or rules.expose
    current = next(mode for mode in modes if mode.expose == expose)
    apps = _mode(expose, view, rules, replace(client, shows_apps=True), bool(query.starting), measures)
    groups = by_server((tool.server, tool) for tool in tools)
    heaviest = sorted(tools, key=lambda tool: (-tool.tokens.full, tool.name))
    return TokenAccount(
        client=query.client,
        profile=query.profile,
        current=current,
        modes=modes,
        budget=rules.budget,
        max_tools=client.max_tools,
        defers=client.defers_tools,
        starting=tuple(query.starting),
        total=_sum(tools),
        instructions=estimate(query.instructions),
        servers=tuple(ServerTokens(server, len(group), _sum(group)) for server, group in groups.items()),
        heaviest=tuple(tool.name for tool in heaviest[: query.heaviest]),
        tools=tuple(tools),
        apps=None if apps == current else apps,
    )


def _mode(
    expose: Expose, view: CatalogView, rules: ViewRules, client: ClientKind, is_partial: bool, measures: _Measures
) -> ModeTokens:
    asking = replace(client, expose=expose)
    mode = decided(view, rules, asking)
    listed = exposed(view, rules, asking, mode, is_partial=is_partial).entries(Kind.TOOL)
    return ModeTokens(expose, mode, len(listed), list_tokens(listed, measures))


def list_tokens(listed: Iterable[Entry], measures: _Measures | None = None) -> int:
    """Tokens of a list of these tools: the sum of their definitions, in every count of the hub."""
    measures = _Measures() if measures is None else measures
    return sum(measures.tokens(in_era(Kind.TOOL, entry.raw, _ERA)) for entry in listed)


def _tools(entries: Sequence[Entry], measures: _Measures) -> list[ToolTokens]:
    shares: dict[str, int] = {}
    for server, names in by_server((entry.server, entry.exported) for entry in entries).items():
        ordered = sorted(names)
        line = estimate(all_names({server: ordered}))
        shares |= zip(ordered, _shared(line, [estimate(f" {name}") for name in ordered]), strict=True)
    return [
        ToolTokens(entry.exported, entry.server, replace(measures.of(entry), names=shares[entry.exported]))
        for entry in entries
    ]


def _shared(whole: int, weights: Sequence[int]) -> list[int]:
    total = sum(weights)
    borders = [0, *(whole * reached // total for reached in accumulate(weights))]
    return [after - before for before, after in pairwise(borders)]


def _sum(tools: Iterable[ToolTokens]) -> Tokens:
    return reduce(Tokens.__add__, (tool.tokens for tool in tools), Tokens())


class TokenAccounts:
    """The token accounts of one catalog, computed one at a time."""

    def __init__(self, catalog: Catalog, upstreams: Mapping[str, Upstream]) -> None:
        self._catalog = catalog
        self._upstreams = upstreams
        self._measures = _Measures()
        self._turn = anyio.Lock()

    async def account(
        self, profile: str | None, client: str, kind: ClientKind, server: str | None, heaviest: int | None
    ) -> TokenAccount:
        """Counts in a worker thread."""
        catalog = self._catalog
        number, text = HEAVIEST if heaviest is None else heaviest, instructions(catalog, self._upstreams, profile)
        query = _CostQuery(
            client=client,
            profile=profile,
            starting=catalog.starting(profile),
            server=server,
            heaviest=number,
            instructions=text or "",
        )
        async with self._turn:
            count = partial(account, catalog.view(profile), catalog.rules(profile), kind, query, self._measures)
            return await anyio.to_thread.run_sync(count, abandon_on_cancel=True)
