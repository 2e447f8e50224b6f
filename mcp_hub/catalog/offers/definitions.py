"""One listed definition: checked, then kept as encoded members, so that schemas stay byte for byte.

Strict clients reject a list for one malformed entry: it is repaired if nothing is lost, else quarantined.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final

import msgspec
from msgspec.structs import replace
from pydantic_core import Url

from mcp_hub.catalog.offers.filters import UNTOLD, EffectiveHints, HintClaims, Traits
from mcp_hub.globs import late
from mcp_hub.masking import hide_head
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.definitions.models import CHECKS, Listed, ListedTool
from mcp_hub.protocol.definitions.output_schemas import problem_of_schema
from mcp_hub.protocol.definitions.repair import Dropped, repaired
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.protocol.jsonrpc.repair import NOT_JSON
from mcp_hub.protocol.jsonrpc.unparsed import flat
from mcp_hub.types import Era, Kind, RawObject, Snapshot

_UI: Final = "ui"
_ADDRESS: Final = "resourceUri"
_OLD_ADDRESS: Final = "ui/resourceUri"
"""The member of `_meta` that older servers send."""
SCHEME: Final = "ui://"
"""Scheme of every app's address."""
_LONGEST: Final = 1024
"""The most characters of an address; a longer one is not rewritten."""


class AppMeta(msgspec.Struct, frozen=True):
    """A tool's app: the server's own `address`, and who may call the tool."""

    address: str | None = None
    for_model: bool = True
    for_app: bool = True


def app_meta(meta: RawObject | None) -> AppMeta | None:
    """Members of wrong types are ignored; without `visibility` a tool is for the model and for apps."""
    if not meta or (_UI not in meta and _OLD_ADDRESS not in meta):
        return None
    ui = raw_object(meta.get(_UI, msgspec.UNSET)) or {}
    visibility = read_as(ui["visibility"], list[object]) if "visibility" in ui else None
    addresses = [_address(raw) for raw in (ui.get(_ADDRESS), meta.get(_OLD_ADDRESS)) if raw is not None]
    return AppMeta(
        next((address for address in addresses if address is not None), None),
        visibility is None or "model" in visibility,
        visibility is None or "app" in visibility,
    )


def _address(raw: msgspec.Raw) -> str | None:
    text = read_as(raw, str)
    return text if text is not None and text.startswith(SCHEME) and len(text) <= _LONGEST else None


def app_members(meta: RawObject) -> RawObject:
    return {name: meta[name] for name in (_UI, _OLD_ADDRESS) if name in meta}


def with_address(definition: bytes, address: str, exported: str) -> bytes:
    """A definition with the exported address of its app."""
    if exported == address:
        return definition
    fields = raw_object(msgspec.Raw(definition)) or {}
    meta = _readdressed(raw_object(fields["_meta"]) or {}, _OLD_ADDRESS, address, exported)
    if _UI in meta and (ui := raw_object(meta[_UI])):
        meta[_UI] = msgspec.Raw(object_bytes(_readdressed(ui, _ADDRESS, address, exported)))
    return object_bytes({**fields, "_meta": meta})


def _readdressed(members: RawObject, name: str, address: str, exported: str) -> RawObject:
    if name not in members or read_as(members[name], str) != address:
        return members
    return {**members, name: msgspec.Raw(object_bytes(exported))}


def without_app(definition: bytes) -> bytes:
    """A definition without its app."""
    fields = raw_object(msgspec.Raw(definition)) or {}
    meta = raw_object(fields.pop("_meta", msgspec.UNSET)) or {}
    remaining = {name: value for name, value in meta.items() if name not in (_UI, _OLD_ADDRESS)}
    return object_bytes({**fields, "_meta": remaining} if remaining else fields)


MAX_KEY_LENGTH = 1024
# serde_json gives up at 128 levels counted from the envelope, jiter at 200; the deepest of 611 real tools has 19
MAX_DEPTH = 100
# more tags, or longer ones, are not read: they come from strangers
_MAX_TAGS = 100
_MAX_TAG = 200
_MAX_REASON = 240  # room for a sentence; a reason may quote the upstream's text
_UNPRINTABLE = late("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SCHEME = late(r"[A-Za-z][A-Za-z0-9+.-]*:")  # RFC 3986 §3.1
# clients in Python cannot read the whole list for an integer with more of them (`sys.int_info.default_max_str_digits`)
_MAX_DIGITS = 4300
_LONG_NUMBER = late(rb"(?<!\d)\d{%d}" % (_MAX_DIGITS + 1))
_STRING = late(rb'"[^"]*"')


class Definition(msgspec.Struct, frozen=True):
    """A usable definition. `key`: the upstream's name, URI or template; `summary`: the description's first line.

    `traits`: hints and tags, also of `_meta` (`tags`, `fastmcp.tags`, `_fastmcp.tags`).
    """

    kind: Kind
    key: str
    fields: RawObject
    summary: str = ""
    traits: Traits = UNTOLD
    hints: EffectiveHints = EffectiveHints()
    app: AppMeta | None = None
    sent: RawObject | None = None

    @property
    def as_sent(self) -> RawObject:
        return self.fields if self.sent is None else self.sent


class Quarantined(msgspec.Struct, frozen=True):
    """A definition, or one `member` of it, that is not exported. A missing `key` is its position, `#n`."""

    server: str
    kind: Kind
    key: str
    reason: str
    member: str = ""

    @property
    def text(self) -> str:
        left_out = f"{self.kind.value} {self.key}{': ' if self.member else ''}{self.member}"
        return f"{left_out} is left out: {self.reason}"


_OBJECT = msgspec.json.Decoder(RawObject)
_TEXT = msgspec.json.Decoder(str)
_ITEMS = msgspec.json.Decoder(list[object])
_ERA_BOUND = (b'"execution"', b'"outputSchema"')
_NO_TASKS = b'"forbidden"'


Parsed = tuple[list[Definition], list[Quarantined]]
_MOST_PARSED = 512  # lists that are remembered as parsed, the last one of each kind of a server
_parsed: dict[tuple[Kind, str], tuple[Sequence[bytes], Parsed]] = {}


class _Unfit(Exception):
    """The definition cannot be listed."""


def parse(kind: Kind, raws: Sequence[bytes], server: str) -> Parsed:
    """Usable definitions in the upstream's order, and unusable ones. Never raises; thread-safe. Cached: do not change
    it.
    """
    cached = _parsed.get((kind, server))
    if cached is None or (cached[0] is not raws and cached[0] != raws):
        cached = raws, _parse(kind, raws, server)
        with suppress(StopIteration, KeyError, RuntimeError):  # whichever thread was quicker
            if len(_parsed) >= _MOST_PARSED:
                del _parsed[next(iter(_parsed))]
        _parsed[kind, server] = cached
    return cached[1]


def prepare(snapshot: Snapshot) -> None:
    """Fills the cache of `parse`."""
    for kind, raws in snapshot.lists.items():
        parse(kind, raws, snapshot.server)


def _parse(kind: Kind, raws: Sequence[bytes], server: str) -> Parsed:
    usable: dict[str, Definition] = {}
    unfit: list[Quarantined] = []
    for position, raw in enumerate(raws, 1):
        try:
            definition, dropped = _read(kind, raw)
        except _Unfit as problem:
            unfit.append(Quarantined(server, kind, _label(kind, raw, position), _clean(str(problem))))
            continue
        unfit += (
            Quarantined(server=server, kind=kind, key=definition.key, reason=_clean(reason), member=member)
            for member, reason in dropped
        )
        if (first := usable.get(definition.key)) is not None:
            reason = f"duplicate {KINDS[kind].id_field}: the first one is used"
            unfit.append(Quarantined(server, kind, definition.key, reason))
            if first.hints != definition.hints:  # the server runs one tool for both, and either may be true
                usable[definition.key] = with_hints(
                    first, EffectiveHints(first.hints.server.worse(definition.hints.server))
                )
        else:
            usable[definition.key] = definition
    return list(usable.values()), unfit


def with_hints(definition: Definition, hints: EffectiveHints) -> Definition:
    return replace(definition, hints=hints, traits=replace(definition.traits, hints=hints.claims.hints()))


def encode_as(definition: Definition, exported: str) -> bytes:
    """The definition under its exported name or URI; other members stay byte for byte."""
    if exported == definition.key:
        return msgspec.json.encode(definition.fields)
    renamed = msgspec.Raw(msgspec.json.encode(exported))
    return msgspec.json.encode({**definition.fields, KINDS[definition.kind].id_field: renamed})


def with_delivery(event: bytes, modes: Sequence[str]) -> bytes:
    """An event type with the modes in which the hub delivers it."""
    return msgspec.json.encode({**_OBJECT.decode(event), "delivery": modes})


def in_era(kind: Kind, raw: bytes, era: Era) -> bytes:
    """An encoded definition without `execution` in the modern era; in the handshake era with output schemas of objects
    only, and the hub's own tasks.
    """
    if kind is not Kind.TOOL or not any(name in raw for name in _ERA_BOUND):
        return raw
    if era is Era.MODERN:
        return without(raw, "execution")
    fields = _OBJECT.decode(raw)
    carried = _of_handshake(fields)
    return raw if carried == fields else msgspec.json.encode(carried)


def without(raw: bytes, member: str) -> bytes:
    """An encoded definition without one member."""
    if b'"%s"' % member.encode() not in raw:
        return raw
    fields = _OBJECT.decode(raw)
    return raw if fields.pop(member, None) is None else msgspec.json.encode(fields)


def _of_handshake(fields: RawObject) -> RawObject:
    members = dict(fields)
    if "outputSchema" in members and not _describes_object(members["outputSchema"]):
        del members["outputSchema"]
    execution = raw_object(members.get("execution", msgspec.UNSET)) or {}
    if bytes(execution.pop("taskSupport", _NO_TASKS)) != _NO_TASKS:  # clients refuse a list for what they do not know
        del members["execution"]
        if execution:
            members["execution"] = msgspec.Raw(msgspec.json.encode(execution))
    return members


def _describes_object(schema: msgspec.Raw) -> bool:
    try:
        return _TEXT.decode(_OBJECT.decode(schema)["type"]) == "object"
    except (msgspec.DecodeError, KeyError):
        return False


def _read(kind: Kind, raw: bytes) -> tuple[Definition, Dropped]:
    if raw == NOT_JSON:
        raise _Unfit("is not JSON that can be read")
    try:
        raw.decode()  # msgspec does not look into strings that it keeps encoded
        sent = _OBJECT.decode(raw)
        if b"\n" in raw or b"\r" in raw:
            sent = _OBJECT.decode(raw.translate(None, b"\r\n"))
        _check_text(raw)
        fields, listed, dropped = _readable(kind, raw, sent)
        key = _TEXT.decode(fields[KINDS[kind].id_field])
        _check_key(kind, key)
    except RecursionError:
        raise _Unfit("nested too deeply") from None
    except UnicodeDecodeError as error:
        raise _Unfit(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except msgspec.DecodeError as error:
        raise _Unfit(str(error)) from None
    summary, traits = first_line(listed.description or ""), _traits(listed, fields)
    definition = Definition(
        kind=kind, key=key, fields=fields, summary=summary, traits=traits, app=app_meta(listed.meta or {})
    )
    if fields is not sent:
        definition = replace(definition, sent=sent)
    if isinstance(listed, ListedTool) and listed.annotations:
        definition = with_hints(definition, EffectiveHints(_claims(listed)))
    return definition, dropped


def _readable(kind: Kind, raw: bytes, sent: RawObject) -> tuple[RawObject, Listed, Dropped]:
    fields, dropped = sent, list[tuple[str, str]]()
    try:
        listed = CHECKS[kind](raw)
    except msgspec.ValidationError:
        fields, dropped = repaired(kind, sent)
        if fields is sent:
            raise
        listed = CHECKS[kind](msgspec.json.encode(fields))
    if isinstance(listed, ListedTool) and listed.output_schema is not msgspec.UNSET:
        problem = problem_of_schema(msgspec.json.decode(fields["outputSchema"]))
        if problem is not None:
            fields = {name: value for name, value in fields.items() if name != "outputSchema"}
            dropped.append(("outputSchema", f"clients cannot compile it: {problem}"))
    return fields, listed, dropped


def _claims(tool: ListedTool) -> HintClaims:
    hints = tool.annotations
    if hints is msgspec.UNSET:
        return HintClaims()
    sent = (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
    return HintClaims(*(None if hint is msgspec.UNSET else hint for hint in sent))


def _check_text(raw: bytes) -> None:
    if NOT_JSON in raw:
        raise _Unfit("holds NaN or Infinity, which JSON does not have")
    if _has_long_number(raw):
        raise _Unfit(f"holds a number of more than {_MAX_DIGITS} digits, which Python's clients cannot read")
    if _is_too_deep(raw):
        raise _Unfit(f"nested deeper than {MAX_DEPTH} levels")


def _traits(listed: Listed, fields: RawObject) -> Traits:
    meta = listed.meta or {}
    fastmcp = [raw_object(meta[name]) or {} for name in ("fastmcp", "_fastmcp") if name in meta]
    tag_lists = [holder["tags"] for holder in (fields, meta, *fastmcp) if "tags" in holder]
    return Traits(frozenset(tag for raw in tag_lists for tag in _tags(raw))) if tag_lists else UNTOLD


def _tags(raw: msgspec.Raw) -> list[str]:
    try:
        return [tag for tag in _ITEMS.decode(raw)[:_MAX_TAGS] if isinstance(tag, str) and len(tag) <= _MAX_TAG]
    except (msgspec.DecodeError, RecursionError):
        return []


def _check_key(kind: Kind, key: str) -> None:
    field = KINDS[kind].id_field
    if not key:
        raise _Unfit(f"{field} is empty")
    if len(key) > MAX_KEY_LENGTH:
        raise _Unfit(f"{field} is longer than {MAX_KEY_LENGTH} characters")
    if _UNPRINTABLE.search(key):
        raise _Unfit(f"{field} holds control characters")
    if kind is Kind.RESOURCE:
        _check_uri(key)


def _check_uri(uri: str) -> None:
    """Clients of `mcp` 1.x read URIs like this, and refuse a list for a bad one."""
    if not _SCHEME.match(uri):
        raise _Unfit("uri has no scheme, so it is not a URI")
    try:
        Url(uri)
    except ValueError as problem:
        reason = str(problem).partition(", ")[2].partition(" [type=")[0]
        raise _Unfit(f"uri is not a URI: {reason or problem}") from None


def _has_long_number(raw: bytes) -> bool:
    if len(raw) <= _MAX_DIGITS or _LONG_NUMBER.search(raw) is None:
        return False
    return _LONG_NUMBER.search(_STRING.sub(b'""', flat(raw))) is not None


_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}
_NOT_STRUCTURE = bytes(set(range(256)) - {*_STEPS, ord('"')})


def _is_too_deep(raw: bytes) -> bool:
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return False
    plain = raw.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in raw else raw
    # adjacent quotes close and open, so dropping them keeps inside and outside apart
    outside = plain.translate(None, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')[::2]
    return max(accumulate(map(_STEPS.__getitem__, b"".join(outside)))) > MAX_DEPTH


def first_line(description: str) -> str:
    return description.strip().partition("\n")[0].rstrip()


def _label(kind: Kind, raw: bytes, position: int) -> str:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        if key := _clean(_TEXT.decode(_OBJECT.decode(raw)[KINDS[kind].id_field])):
            return key
    return f"#{position}"


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("?", hide_head(text, _MAX_REASON, "…"))
