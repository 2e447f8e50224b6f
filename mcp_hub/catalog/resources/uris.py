"""Exported resource URIs and templates, in lists and results, and the way back to the server.

On a clash the first server in configured order keeps a URI; others' become `hub://<server>/<original>`, or
`hub://<server>!<n>/<encoded>` if that is invalid. An app's address keeps its scheme: `ui://<server>/<rest>` if listed
or named by a tool, else `ui://<server>!/<rest>` or `ui://<server>!<n>/<encoded>`. An unlisted URI belongs to the server
that mentioned it first.

Source: specification 2025-11-25 and 2026-07-28, server/tools "Resource Links" and "Embedded Resources".
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from mcp_hub.catalog.resources.skills import SkillRoots
from mcp_hub.globs import late
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import Origin, RawJson

MAX_REMEMBERED: Final = 4096  # URIs: the links of some hundred results, in at most some megabytes
_MAX_LENGTH: Final = 2048  # characters of a URI that is remembered; a longer one is wrapped, which needs no memory

# `uri` as a member's name or a whole value: inside of a text its quotes would be escaped. 5 MB take 1.3 ms;
# `bytes.find` needs a copy and twice the time.
mentions_uris: Callable[[RawJson], object] = re.compile(rb'"uri"').search
"""Whether a result may contain URIs; a quick test."""
_string = msgspec.json.Decoder(str).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode

_Exported = Callable[[str], str]
_Rewrite = Callable[[msgspec.Raw, _Exported], msgspec.Raw]  # gives back the very same object where nothing changes


class Remembered:
    """The first server that mentioned each unlisted URI; the least recently used is dropped."""

    def __init__(self, limit: int = MAX_REMEMBERED) -> None:
        self._limit = limit
        self._servers: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._servers)

    def owner(self, uri: str) -> str | None:
        """Asking counts as use."""
        server = self._servers.get(uri)
        if server is not None:
            self._servers.move_to_end(uri)
        return server

    def claim(self, uri: str, server: str) -> bool:
        """Records `uri` as this server's; False if it is another's or too long."""
        if len(uri) > _MAX_LENGTH or self._servers.setdefault(uri, server) != server:
            return False
        self._servers.move_to_end(uri)
        if len(self._servers) > self._limit:
            self._servers.popitem(last=False)
        return True


def readdress(method: str, result: RawJson, exported: Callable[[str], str]) -> RawJson:
    """The result of `method` with each resource URI exported; everything else is kept."""
    rewrite = _PLACES.get(method)
    if rewrite is None or not mentions_uris(result):
        return result
    whole = result if isinstance(result, msgspec.Raw) else msgspec.Raw(result)
    changed = rewrite(whole, exported)
    return result if changed is whole else changed


def _uri(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
    try:
        upstream_uri = _string(raw)
    except ValueError:
        return raw
    name = exported(upstream_uri)
    return raw if name == upstream_uri else msgspec.Raw(object_bytes(name))


def _member(name: str, rewrite: _Rewrite) -> _Rewrite:
    def rewritten(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
        members = raw_object(raw) or {}
        if name not in members:
            return raw
        changed = rewrite(members[name], exported)
        return raw if changed is members[name] else msgspec.Raw(object_bytes({**members, name: changed}))

    return rewritten


def _each(rewrite: _Rewrite) -> _Rewrite:
    def rewritten(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
        try:
            items = _array(raw)
        except (ValueError, RecursionError):
            return raw
        changed = [rewrite(item, exported) for item in items]
        is_same = all(new is old for new, old in zip(changed, items, strict=True))
        return raw if is_same else msgspec.Raw(object_bytes(changed))

    return rewritten


_LINK: Final = _member("uri", _uri)
_BLOCKS: Final = {b'"resource_link"': _LINK, b'"resource"': _member("resource", _LINK)}


def _block(raw: msgspec.Raw, exported: _Exported) -> msgspec.Raw:
    rewrite = _BLOCKS.get(bytes((raw_object(raw) or {}).get("type", b"")))
    return raw if rewrite is None else rewrite(raw, exported)


_PLACES: Final = {
    "tools/call": _member("content", _each(_block)),
    "prompts/get": _member("messages", _each(_member("content", _block))),
    "resources/read": _member("contents", _each(_LINK)),
    "resources/directory/read": _member("resources", _each(_LINK)),
}


MAX_MATCHED = 8192  # longer URIs are data, not addresses; bounds the work of one look-up
_HUB = "hub://"
_WEB = ("https://", "http://")
_UI = "ui://"
_WRAPPED = late(r"hub://([^/!]*)(!\d+)?/(.*)", re.DOTALL)
_WRAPPED_UI = late(r"ui://([^/!]*)!(\d*)/(.*)", re.DOTALL)
_PATH = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_VALID = late(rf"[A-Za-z][A-Za-z0-9+.-]*:{_PATH}(?:#{_PATH})?")
_EXPRESSION = late(r"\{([^{}]*)\}")
# RFC 6570 §2.2: operator → (what a non-empty expansion begins with, characters that it cannot hold). Wider than the
# RFC where naive clients paste values in unencoded.
_OPERATORS = {
    **{"+": ("", ""), "#": ("#", ""), ".": (".", "/?#"), "/": ("/", "?#")},
    **{";": (";", "/?#"), "?": ("?", "#"), "&": ("&", "#")},
}
_SIMPLE = ("", "/?#")


_NO_SKILLS = SkillRoots()


def assign(listed: Iterable[Origin], skills: SkillRoots = _NO_SKILLS) -> dict[Origin, str]:
    """The exported URI of each listed resource; `listed` is in configured order of servers."""
    origins = list(dict.fromkeys(listed))
    owners = {uri: server for server, uri in reversed(origins)}
    taken = set(owners)
    exported: dict[Origin, str] = {}
    for server, uri in origins:
        if (inside := skills.exported(server, uri)) is not None:
            exported[server, uri] = inside
        elif owners[uri] == server and skills.resolve(uri) is None:
            exported[server, uri] = uri
        else:
            name = next(name for name in _wrappings(server, uri) if name not in taken)
            taken.add(name)
            exported[server, uri] = name
    return exported


def assign_templates(listed: Iterable[Origin]) -> dict[Origin, str]:
    """Exported templates; one that seems to name its server is always wrapped."""
    origins = list(dict.fromkeys(listed))
    owners = {template: server for server, template in reversed(origins)}
    exported: dict[Origin, str] = {}
    for server, template in origins:
        is_kept = owners[template] == server and not _is_of_hub(template)  # else an expansion would go astray
        exported[server, template] = template if is_kept else _wrapped(server, template)
    return exported


def _wrapped(server: str, uri: str) -> str:
    if uri.startswith(_UI):
        return f"{_UI}{_host(server)}!/{uri.removeprefix(_UI)}"
    return f"{_HUB}{_host(server)}/{uri}"


def _is_of_hub(uri: str) -> bool:
    return uri[: len(_HUB)].lower() == _HUB or _WRAPPED_UI.fullmatch(uri) is not None


def _wrappings(server: str, uri: str) -> Iterator[str]:
    scheme = _UI if uri.startswith(_UI) else _HUB
    if _VALID.fullmatch(uri):
        if scheme == _UI:
            yield f"{_UI}{_host(server)}/{uri.removeprefix(_UI)}"
        yield _wrapped(server, uri)
    encoded = quote(uri, safe="", errors="surrogatepass")
    for attempt in count(1):
        yield f"{scheme}{_host(server)}!{attempt}/{encoded}"


def _host(server: str) -> str:
    return quote(server, safe="", errors="surrogatepass")


class _Matcher(msgspec.Struct, frozen=True):
    literals: tuple[str, ...]
    expressions: tuple[tuple[str, str], ...]

    def matches(self, subject: "_Subject") -> bool:
        """Never exponential."""
        uri = subject.uri
        if not uri.startswith(self.literals[0]) or not uri.endswith(self.literals[-1]):
            return False
        reached = 1 << len(self.literals[0])  # bit i: the parts so far can cover the first i characters
        for (lead, stops), literal in zip(self.expressions, self.literals[1:], strict=True):
            started = reached if not lead else (reached & subject.places(lead)) << 1
            run = subject.run(stops)
            # bit-parallel star: a carry ripples through each run of allowed characters that starts at a set bit
            reached |= (((started & run) + run) ^ run) | started
            if literal:
                reached = (reached & subject.places(literal)) << len(literal)
        return bool(reached >> len(uri) & 1)


class _Subject:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._places: dict[str, int] = {}
        self._runs: dict[str, int] = {}

    def places(self, text: str) -> int:
        """Bit i: `text` begins at i."""
        if text not in self._places:
            marks = bytearray(len(self.uri) // 8 + 1)
            at = self.uri.find(text)
            while at >= 0:
                marks[at >> 3] |= 1 << (at & 7)
                at = self.uri.find(text, at + 1)
            self._places[text] = int.from_bytes(marks, "little")
        return self._places[text]

    def run(self, stops: str) -> int:
        """Bit i: the character at i is not in `stops`."""
        if stops not in self._runs:
            stopped = 0
            for char in stops:
                stopped |= self.places(char)
            self._runs[stops] = ((1 << len(self.uri)) - 1) & ~stopped
        return self._runs[stops]


def _matcher(template: str) -> _Matcher | None:
    parts = _EXPRESSION.split(template)
    literals, variables = parts[::2], parts[1::2]
    if any("{" in text or "}" in text for text in literals):
        return None
    if any(not text or text[0] in "=,!@|" for text in variables):  # the operators that the RFC reserves
        return None
    return _Matcher(tuple(literals), tuple(_OPERATORS.get(text[0], _SIMPLE) for text in variables))


class Templates:
    """Upstream templates in configured order."""

    def __init__(self, origins: Iterable[Origin]) -> None:
        parsed = ((server, _matcher(template)) for server, template in origins)
        self._matchers = [(server, matcher) for server, matcher in parsed if matcher is not None]

    def server_for(self, uri: str) -> str | None:
        return next(self._servers_for(uri), None)

    def covers(self, server: str, uri: str) -> bool:
        return server in self._servers_for(uri)

    def _servers_for(self, uri: str) -> Iterator[str]:
        if len(uri) <= MAX_MATCHED:
            subject = _Subject(uri)
            yield from (server for server, matcher in self._matchers if matcher.matches(subject))


class UriTable:
    """The two-way map between exported URIs and (server, upstream's URI), also for unlisted ones."""

    def __init__(
        self,
        exported: Mapping[Origin, str],
        templates: Templates,
        servers: Iterable[str],
        readers: Sequence[str],
        remembered: Remembered,
        skills: SkillRoots = _NO_SKILLS,
    ) -> None:
        """`readers`: servers with the resources capability. `remembered` is shared."""
        self._exported = dict(exported)
        self._origins = {name: origin for origin, name in self._exported.items()}
        self._templates = templates
        self._servers = frozenset(servers)
        self._hosts = {_host(server): server for server in self._servers}
        self._sole_reader = readers[0] if len(readers) == 1 else None
        self._remembered = remembered
        self._skills = skills

    def resolve(self, uri: str, *, may_guess: bool = True) -> Origin | None:
        """By the first that applies: listed or in a skill; `hub://<server>/…`; mentioned; an expansion; if it
        `may_guess`, the only server with resources.
        """
        origin = self._origins.get(uri) or self._skills.resolve(uri) or self._unwrapped(uri)
        if origin is not None or _is_of_hub(uri):
            return origin
        server = self._remembered.owner(uri)
        if server not in self._servers:
            server = self._templates.server_for(uri) or (self._sole_reader if may_guess else None)
        return None if server is None else (server, uri)

    def exported(self, server: str, uri: str, *, remembers: bool = True) -> str:
        """The client's URI. An unlisted one is remembered, or wrapped unless it `remembers`."""
        listed = self._exported.get((server, uri))
        if listed is not None:
            return listed
        if (inside := self._skills.exported(server, uri)) is not None:
            return inside
        if server not in self._servers or len(uri) > MAX_MATCHED or (remembers and self._keeps(server, uri)):
            return uri
        return next(name for name in _wrappings(server, uri) if self.resolve(name) == (server, uri))

    def _keeps(self, server: str, uri: str) -> bool:
        """Whether an unlisted URI needs no wrapping: no other server's, or of the web (2025-11-25, server/resources
        "Common URI Schemes").
        """
        if uri.lower().startswith(_WEB):
            self._remembered.claim(uri, server)
            return True
        if uri in self._origins or _is_of_hub(uri) or self._skills.resolve(uri) is not None:
            return False
        if self._remembered.owner(uri) == server:
            return True
        if self._templates.server_for(uri) not in (None, server):
            return False
        return self._remembered.claim(uri, server) or self.resolve(uri) == (server, uri)

    def _unwrapped(self, uri: str) -> Origin | None:
        parts = _WRAPPED.fullmatch(uri) or _WRAPPED_UI.fullmatch(uri)
        server = self._hosts.get(parts[1]) if parts else None
        if parts is None or server is None:
            return None
        if parts[2]:
            return server, unquote(parts[3], errors="surrogatepass")
        return server, f"{_UI}{parts[3]}" if uri.startswith(_UI) else parts[3]
