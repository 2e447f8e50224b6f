"""The servers of a view in few words. Pure.

The hub's `instructions` take at most 90 tokens, besides 2,000 bytes of configured text.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.texts import MAX_PURPOSE, OPENING, first_sentence, greatest, one_line
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.entries import by_server
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.types import ClientKind, Kind, Snapshot, UpstreamState, UpstreamStatus

_MAX_NAME: Final = 64
_MOST_NAMED: Final = 4  # tools that are named for a server that says nothing of itself
_DOWN: Final = (UpstreamState.FAILED, UpstreamState.INCOMPATIBLE)
FAILED: Final = "Failed: "
"""The beginning of the line of failed servers."""
MOST_OWN: Final = 2000
"""Bytes of UTF-8 of the configuration's text."""
MOST_TOKENS: Final = 84
"""Estimated tokens of the hub's instructions: 90 of a real tokenizer. With the hub's own tools they are below 500."""
_SEARCH: Final = "Not all are listed: find_tools finds others, read_tool and run_tool run them."
_WIDTHS: Final = (120, 60, 30, 16, 0)  # characters of what a server is for: the most that fit for all
_ANYBODY: Final = ClientKind()


class ServerAbout(msgspec.Struct, frozen=True):
    """A usable server: harmless name and purpose, number of tools."""

    name: str
    tools: int
    purpose: str

    def line(self, width: int = MAX_PURPOSE) -> str:
        """`git (26): Reads repositories`, with at most `width` characters of purpose."""
        head = f"{self.name} ({self.tools})" if self.tools else self.name
        purpose = first_sentence(self.purpose, width) if width else ""
        return f"{head}: {purpose}" if purpose else head


def live(view: CatalogView, rules: ViewRules, upstreams: Mapping[str, Upstream]) -> list[ServerAbout]:
    """Servers in the view that are not down, in configured order.

    A purpose is configured, else from approved instructions, else a few tools.
    """
    tools = by_server((entry.server, entry.key) for entry in view.entries(Kind.TOOL))
    listed = {entry.server for kind in Kind for entry in view.entries(kind)}
    abouts = []
    for name, server_rules in rules.servers.items():
        upstream = upstreams.get(name)
        snapshot = upstream.snapshot() if upstream is not None else None
        if upstream is None or snapshot is None or name not in listed or upstream.status().state in _DOWN:
            continue
        names = tools.get(name, [])
        text = server_rules.description or (snapshot.instructions if (None, name) not in view.withheld else None)
        purpose = first_sentence(text or "", MAX_PURPOSE) or _some(names)
        abouts.append(ServerAbout(one_line(name, _MAX_NAME), len(names), purpose))
    return abouts


def have_events(upstreams: Mapping[str, Upstream], servers: Iterable[str], lists: Iterable[Snapshot] = ()) -> bool:
    """Whether one of these servers has events, as far as they were listed; `lists` of the caller's own connections."""
    snapshots = [upstreams[server].snapshot() for server in servers if server in upstreams]
    return any(KINDS[Kind.EVENT].is_offered(listed.capabilities) for listed in (*snapshots, *lists) if listed)


def absent(rules: ViewRules, upstreams: Mapping[str, Upstream]) -> list[UpstreamStatus]:
    """Failed servers, and never-listed ones that may still start."""
    configured = [upstream for name in rules.servers if (upstream := upstreams.get(name)) is not None]
    awaited = [UpstreamState.STARTING, UpstreamState.BACKING_OFF]
    statuses = [(upstream.status(), upstream.snapshot() is None) for upstream in configured]
    return [status for status, is_new in statuses if status.state in _DOWN or (is_new and status.state in awaited)]


def is_starting(status: UpstreamStatus) -> bool:
    return status.state is UpstreamState.STARTING and not status.failures and status.reason is None


def why_absent(statuses: Iterable[UpstreamStatus]) -> list[str]:
    """One line for starting servers, one for failed ones."""
    starting, failed = [], []
    for status in statuses:
        name = one_line(status.server, _MAX_NAME)
        if is_starting(status):
            starting.append(name)
        else:
            failed.append(f"{name} ({status.code})" if status.code else name)
    lines = [f"Starting, tools not known yet: {', '.join(starting)}."] if starting else []
    return [*lines, f"{FAILED}{', '.join(failed)}."] if failed else lines


def _some(names: list[str]) -> str:
    listed = ", ".join(one_line(name, _MAX_NAME) for name in names[:_MOST_NAMED])
    return f"{listed}, …" if len(names) > _MOST_NAMED else listed


def instructions(catalog: Catalog, upstreams: Mapping[str, Upstream], profile: str | None) -> str | None:
    """The current instructions for a profile. Raises `KeyError` for an unknown one."""
    view, rules = catalog.view(profile).for_model, catalog.rules(profile)
    is_partial = rules.expose == "auto" and bool(catalog.starting(profile))
    starting = [status.server for status in absent(rules, upstreams) if is_starting(status)]
    servers = live(view, rules, upstreams)
    is_search = is_partial or catalog.mode(profile, _ANYBODY) != "full"
    return compose(rules.instructions, servers, starting, is_search=is_search)


def compose(
    introduction: str | None, servers: Sequence[ServerAbout], starting: Sequence[str] = (), *, is_search: bool = False
) -> str | None:
    """`introduction`, server lines as they fit, and with `is_search` how to find tools."""
    parts = [_cut(introduction, MOST_OWN)] if introduction else []
    if servers or starting:
        parts.append(_introduction(servers, starting, f"{OPENING} {_SEARCH}" if is_search else OPENING))
    return "\n\n".join(parts) or None


def _introduction(servers: Sequence[ServerAbout], starting: Sequence[str], opening: str) -> str:
    names = ", ".join(map(one_line, starting))
    end = [f"Starting: {names}."] if names else []
    for width in _WIDTHS:
        lines = [server.line(width) for server in servers]
        text = "\n".join([opening, *lines, *end])
        if estimate(text) <= MOST_TOKENS:
            return text
    return _crowded({server.name: server.tools for server in servers}, starting, opening)


def _crowded(counts: Mapping[str, int], starting: Sequence[str], opening: str) -> str:
    def fits(before: str) -> Callable[[str], bool]:
        return lambda text: estimate(f"{before}{text}.") <= MOST_TOKENS

    text = opening
    for head, some, form in (("Servers", counts, "{} ({})"), ("Starting", dict.fromkeys(starting, 0), "{}")):
        if fitting := greatest(some, fits(f"{text}\n{head}: "), form):
            text = f"{text}\n{head}: {fitting}."
    return text


def _cut(text: str, limit: int) -> str:
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"
