"""The hub's own instructions, at most 150 tokens: how to reach tools, which servers there are, what each is for.

Clients put instructions into the model's context on every turn. Text of the configuration comes first and is not part
of the 150 tokens: it has up to 2,000 bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.costs.tokens import estimate
from mcp_hub.catalog.discovery.plain_text import OPENING, one_line
from mcp_hub.catalog.discovery.servers import ServerAbout, absent, is_starting, live
from mcp_hub.catalog.discovery.signatures import greatest
from mcp_hub.types import ClientKind

MOST_OWN: Final = 2000
"""Bytes of UTF-8 of the configuration's text."""
MOST_TOKENS: Final = 142
"""As estimated: 150 of a real tokenizer."""
_SEARCH: Final = "Not all tools are listed: find_tools searches, read_tool runs those that only read, run_tool any."
_WIDTHS: Final = (120, 60, 30, 0)  # characters of what a server is for: the most that fit for all
_ANYBODY: Final = ClientKind()


def instructions(catalog: Catalog, upstreams: Mapping[str, Upstream], profile: str | None) -> str | None:
    """The instructions for clients of a profile, as of now. Raises `KeyError` for one that is not configured."""
    view, rules = catalog.view(profile).for_model, catalog.rules(profile)
    is_partial = rules.expose == "auto" and bool(catalog.starting(profile))
    starting = [status.server for status in absent(rules, upstreams) if is_starting(status)]
    servers = live(view, rules, upstreams)
    is_search = is_partial or catalog.mode(profile, _ANYBODY) != "full"
    return compose(rules.instructions, servers, starting, is_search=is_search)


def compose(
    own: str | None, servers: Sequence[ServerAbout], starting: Sequence[str] = (), *, is_search: bool = False
) -> str | None:
    """`own` text, then a line a server as far as they fit; with `is_search` how to find and run tools.

    None if there is nothing to say.
    """
    parts = [_cut(own, MOST_OWN)] if own else []
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
    """The largest servers on one line, and as many of those that are starting as there is room for."""

    def fits(before: str) -> Callable[[str], bool]:
        return lambda text: estimate(f"{before}{text}.") <= MOST_TOKENS

    text = opening
    for head, some, form in (("Servers", counts, "{} ({})"), ("Starting", dict.fromkeys(starting, 0), "{}")):
        if shown := greatest(some, fits(f"{text}\n{head}: "), form):
            text = f"{text}\n{head}: {shown}."
    return text


def _cut(text: str, limit: int) -> str:
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"
