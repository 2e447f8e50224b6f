"""The answers of `find_tools` as text, and the servers of a view in few words. Pure.

An unindented line that is not JSON is the hub's, or begins with the name of a tool or server.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.compact import compact_tool
from mcp_hub.catalog.offers.rules import ViewRules
from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import Hit, SearchIndex
from mcp_hub.catalog.search.words import has_latin
from mcp_hub.catalog.texts import (
    FIND,
    HOW_TO_READ,
    MAX_PURPOSE,
    OPENING,
    all_names,
    counted,
    escaped,
    first_sentence,
    greatest,
    one_line,
    parameter_notes,
    purpose,
    signature,
)
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.entries import Entry, by_server
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.code.signatures import line, returned
from mcp_hub.code.tool import RUN_CODE
from mcp_hub.globs import late
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.jsonrpc.envelope import raw_object
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
        """`git (26): Reads repositories`; `width`: characters of purpose."""
        head = f"{self.name} ({self.tools})" if self.tools else self.name
        purpose = first_sentence(self.purpose, width) if width else ""
        return f"{head}: {purpose}" if purpose else head


def live(view: CatalogView, rules: ViewRules, upstreams: Mapping[str, Upstream]) -> list[ServerAbout]:
    """Servers that are not down, in configured order.

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
    """Whether a listed server has events; `lists` of the caller's own connections."""
    snapshots = [upstreams[server].snapshot() for server in servers if server in upstreams]
    return any(KINDS[Kind.EVENT].is_offered(listed.capabilities) for listed in (*snapshots, *lists) if listed)


def absent(rules: ViewRules, upstreams: Mapping[str, Upstream]) -> list[UpstreamStatus]:
    """Failed servers, never-listed ones that may still start."""
    configured = [upstream for name in rules.servers if (upstream := upstreams.get(name)) is not None]
    awaited = [UpstreamState.STARTING, UpstreamState.BACKING_OFF]
    statuses = [(upstream.status(), upstream.snapshot() is None) for upstream in configured]
    return [status for status, is_new in statuses if status.state in _DOWN or (is_new and status.state in awaited)]


def is_starting(status: UpstreamStatus) -> bool:
    return status.state is UpstreamState.STARTING and not status.failures and status.reason is None


def why_absent(statuses: Iterable[UpstreamStatus]) -> list[str]:
    """One line for starting, one for failed servers."""
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


Detail = Literal["brief", "full"]

_SERVERS_BYTES: Final = 200  # bytes of servers before weak hits, some 60 tokens
_ONLY_SERVERS_BYTES: Final = 600  # bytes of servers in an answer without hits
_NOTED: Final = 2  # hits whose parameters are explained: the tool that is called is mostly one of them
_NOTES: Final = 220  # characters of notes on one hit's parameters
_MOST_ALSO: Final = 4  # near-duplicates that are named with a hit
_LISTED_EVENTS: Final = 200  # event types in one list
WEAK: Final = " [weak match]"
_IN_ENGLISH: Final = " Search again in English."
_READS: Final = "*"
"""The mark of a tool that `read_tool` runs."""
_OF_A_TOOL: Final = ("name", "description", "inputSchema")
_WORD: Final = late(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_RETURNED: Final = 1000  # characters of a result's type behind a definition
_IN_SCRIPTS: Final = f"\nIn {RUN_CODE} each other character of a name is _."
_EVENTS: Final = 3
_MOST_EVENTS: Final = 500  # event types in an answer, and those that are searched
_DESTROYS: Final = frozenset(
    "clear delete destroy drop erase expunge kill overwrite prune purge remove reset revoke shutdown terminate trash "
    "truncate uninstall unlink wipe".split()
)
"""Words in names of destructive tools."""


def answer(
    results: Sequence[Hit],
    raws: Mapping[str, bytes],
    servers: Mapping[str, int],
    *,
    detail: Detail = "brief",
    limit: int = 8,
    budget_tokens: int = 2000,
    reads: Collection[str] = (),
    query: str = "",
    names: Mapping[str, str] = _NO_NAMES,
) -> str:
    """One line per hit, the first two with parameter notes; in full, definitions.

    `raws`: definitions by hit. `reads`: read-only hits. `servers`: tool counts. Above `budget_tokens` definitions
    become lines, lines a count. `names`: those of hits in scripts, where they can be called; then lines are Python. No
    weak answer begins with a destructive tool; one to a `query` without Latin words
    asks for English.
    """
    hits = [hit for hit in results if hit.id in raws][: max(limit, 1)]
    if not hits or results[0].weak:
        advice = _IN_ENGLISH if query and not has_latin(query) else ""
        return _weak(hits, raws, servers, detail, budget_tokens, reads, advice, names)
    return "\n".join(_lines(hits, raws, detail, budget_tokens, _NOTED, reads, names)[0])


def listing(
    raws: Mapping[str, bytes],
    *,
    detail: Detail = "brief",
    limit: int = 0,
    budget_tokens: int = 2000,
    reads: Collection[str] = (),
    names: Mapping[str, str] = _NO_NAMES,
) -> str:
    """All tools of one server, at most `limit` (0: all); by name if lines do not fit."""
    hits = [Hit(name, 0.0, (), {}) for name in raws][: limit or None]
    lines, is_whole = _lines(hits, raws, detail, budget_tokens, 0, reads, names)
    text = HOW_TO_READ + all_names({"": [hit.id for hit in hits]})
    if any(names.get(hit.id, hit.id) != hit.id for hit in hits):
        text += _IN_SCRIPTS
    return "\n".join(lines) if is_whole or estimate(text) > budget_tokens else text


def overview(servers: Sequence[ServerAbout], budget_tokens: int = 2000) -> str:
    """One line per server: name, number of tools, purpose."""
    if not servers:
        return "There are no tools."
    for width in (120, 40, 0):
        text = "\n".join(server.line(width) for server in servers)
        if estimate(text) <= budget_tokens:
            return text
    return counted({server.name: server.tools for server in servers}, 2 * budget_tokens)


def events_found(types: Sequence[Searchable], query: str) -> list[str]:
    """A line for each of the event types that fit best, and how to wait; without a query for the first ones."""
    if not types:
        return []
    index = SearchIndex()
    index.put("", types[:_MOST_EVENTS])
    results = [hit.id for hit in index.search(query, _EVENTS) if not hit.weak] if query else [of.id for of in types]
    texts = {of.id: first_sentence(of.description, MAX_PURPOSE) for of in types}
    lines = [f"event {one_line(id_)}: {one_line(texts[id_])}" for id_ in results[:_EVENTS]]
    return [*lines, "hub_events waits for an event."] if lines else []


def exact(raw: bytes, *, is_read_only: bool = False, script: str = "") -> str:
    """A compact definition as one line of JSON, with what `in_script` says of it. Never raises."""
    try:
        fields = raw_object(compact_tool(raw)) or {}
        definition = msgspec.json.encode({name: fields[name] for name in _OF_A_TOOL if name in fields})
        text = escaped(msgspec.json.format(definition, indent=-1).decode()) + (_READS if is_read_only else "")
        return f"{text} {script}" if script else text
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "{}"


def _weak(
    hits: Sequence[Hit],
    raws: Mapping[str, bytes],
    servers: Mapping[str, int],
    detail: Detail,
    budget_tokens: int,
    reads: Collection[str],
    advice: str,
    names: Mapping[str, str],
) -> str:
    if not servers:
        return "No tool fits: no tools are available."
    if not hits:
        return f"No tool fits. Servers: {counted(servers, _ONLY_SERVERS_BYTES)}.{advice}"
    head = f"No close match. Servers: {counted(servers, _SERVERS_BYTES)}.{advice}"
    harmful = [hit for hit in hits if _destroys(raws[hit.id])]
    if len(harmful) == len(hits):
        hidden = ", ".join(one_line(hit.id) for hit in hits)
        return f"{head} Weak matches that may destroy data, not shown: {hidden}"
    ordered = [hit for hit in hits if hit not in harmful] + harmful
    head += " Weak matches:"
    lines, _ = _lines(ordered, raws, detail, budget_tokens - estimate(head), 0, reads, names, weak="")
    return "\n".join([head, *lines])


class _Annotated(msgspec.Struct):
    name: str = ""
    annotations: dict[str, object] | None = None


def _destroys(raw: bytes) -> bool:
    try:
        tool = msgspec.json.decode(raw, type=_Annotated)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    hints = tool.annotations or {}
    if isinstance(destroys := hints.get("destructiveHint"), bool) or hints.get("readOnlyHint") is True:
        return destroys is True
    return not _DESTROYS.isdisjoint(word.lower() for word in _WORD.findall(tool.name))


def _lines(
    hits: Sequence[Hit],
    raws: Mapping[str, bytes],
    detail: Detail,
    tokens: int,
    noted: int,
    reads: Collection[str],
    names: Mapping[str, str],
    *,
    weak: str = WEAK,
) -> tuple[list[str], bool]:
    lines: list[str] = []
    is_short, missing = False, 0
    for position, hit in enumerate(hits):
        mark = weak if hit.weak else ""
        notes = _NOTES if position < noted else 0
        text, is_full = _hit_text(hit, raws[hit.id], detail, notes, tokens, mark, names, is_read_only=hit.id in reads)
        cost = estimate(text) + 1
        if cost > tokens:
            missing = len(hits) - position
            break
        tokens -= cost
        is_short = is_short or not is_full
        lines.append(text)
    if is_short and detail == "full":
        lines.append(f"Those in one line were too long in full: ask {FIND} for one by its exact name.")
    if missing:
        lines.append(f"{missing} more were left out.")
    return lines, not missing


def _hit_text(
    hit: Hit, raw: bytes, detail: Detail, notes: int, tokens: int, mark: str, names: Mapping[str, str], *,
    is_read_only: bool,
) -> tuple[str, bool]:  # fmt: skip
    script_name = names.get(hit.id, "")
    also = "\nalso: " + _listed(hit.also) if hit.also else ""
    if detail == "full":
        text = exact(raw, is_read_only=is_read_only, script=in_script(hit.id, script_name, raw)) + mark + also
        if estimate(text) < tokens:
            return text, True
    lines = parameter_notes(raw, notes) if detail == "brief" and notes else []
    noted = "\n  " + "; ".join(lines) if lines else ""
    reading = _READS if is_read_only else ""
    text = _callable(hit.id, script_name, raw, reading) if script_name else signature(hit.id, raw, mark=reading)
    return text + mark + noted + also, detail == "brief"


def in_script(exported: str, name: str, raw: bytes) -> str:
    """`(run_code: git_log) -> {"commits": list[dict]}`: a tool's name in scripts, if that differs, and its result's
    type, if known. Without a `name`: empty.
    """
    differing = f"({RUN_CODE}: {name})" if name != exported else ""
    result = returned(raw, _RETURNED)
    return " ".join(filter(None, (differing, f"-> {result}" if result else ""))) if name else ""


def _callable(exported: str, name: str, raw: bytes, mark: str) -> str:
    return line(name, raw, purpose(raw), exported=one_line(exported), mark=mark)


def _listed(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _MOST_ALSO else ""
    return ", ".join(map(one_line, names[:_MOST_ALSO])) + more


def event_types(events: Sequence[Entry]) -> str:
    """Event types, one on each line with its arguments, as the list of `hub_events`."""
    if not events:
        return "No server has events for you now."
    lines = [signature(event.exported, event.raw) for event in events[:_LISTED_EVENTS]]
    if more := len(events) - len(lines):
        lines.append(f"… and {more} more")
    head = 'Arguments are in brackets. A definition with its payload: {"action":"list","name":"…"}'
    return "\n".join([head, "", *lines])
