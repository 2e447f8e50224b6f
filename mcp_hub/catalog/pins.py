"""A server's texts for models as they were approved, and the changes since. Pure.

A pin hashes a tool's `name`, `description`, `inputSchema`, `outputSchema`, `annotations` and `app`, with sorted keys; a
skill's `uri`, `frontmatter` and `resources`; prompts, resource templates, event types, instructions. The first list is
trusted; later differences need a person's approval.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from mcp_hub.catalog.flags import as_json, ends_of_members, flag_texts
from mcp_hub.catalog.offers.definitions import app_members, parse
from mcp_hub.catalog.texts import MAX_PURPOSE, OPENING, first_sentence
from mcp_hub.errors import not_approved
from mcp_hub.masking import hide_head
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import Kind, Origin, RawObject, Snapshot

Policy = Literal["off", "warn", "block"]
_APP: Final = "app"
MEMBERS: Final[tuple[str, ...]] = ("name", "description", "inputSchema", "outputSchema", "annotations", _APP)
"""The members of a tool that its pin hashes."""
SKILL_MEMBERS: Final[tuple[str, ...]] = ("uri", "frontmatter", "resources")
"""The members of a skill that its pin hashes."""
_PROMPT_MEMBERS: Final = ("name", "title", "description", "arguments")
_TEMPLATE_MEMBERS: Final = ("uriTemplate", "name", "title", "description")
_EVENT_MEMBERS: Final = ("name", "title", "description", "inputSchema", "payloadSchema")
_INSTRUCTIONS: Final = "instructions"
ALL_MEMBERS: Final = (*MEMBERS, *SKILL_MEMBERS, "title", "arguments", "uriTemplate", "payloadSchema", _INSTRUCTIONS)
_MEMBERS_OF: Final = {
    Kind.TOOL: MEMBERS,
    Kind.SKILL: SKILL_MEMBERS,
    Kind.PROMPT: _PROMPT_MEMBERS,
    Kind.TEMPLATE: _TEMPLATE_MEMBERS,
    Kind.EVENT: _EVENT_MEMBERS,
}
INSTRUCTIONS: Final = "server:instructions"
"""The name of the pin of a server's instructions."""
_PREFIXED: Final = {
    **{Kind.PROMPT: "prompt:", Kind.TEMPLATE: "template:", Kind.RESOURCE: "resource:"},
    Kind.EVENT: "event:",
}
_TOOL: Final = "tool:"
_RESERVED: Final = (*_PREFIXED.values(), _TOOL, INSTRUCTIONS)
MOST_TOOLS: Final = 20_000  # pins of one server: two full lists of the largest; what is new beyond is never approved
MOST_DEFINITION: Final = 256 << 10  # bytes of a definition that is kept whole to be shown beside the next one
_MOST_ENDS: Final = 8192  # characters of each member of a longer one
_FEWEST_ENDS: Final = 1024  # the same where there is no room for more
_MOST_SEARCHED: Final = 256 << 10  # characters of each member of a longer one that are searched for flags
_MOST_TEXT: Final = 8 << 20  # bytes of all definitions that are kept of one server
_FIELD_HASH: Final = 16
_WRITTEN_HASH: Final = 32  # hex digits: half of SHA-256, which nobody can meet on purpose either
_VERSION: Final = 1


_FindingKind = Literal["changed", "new", "unreadable", "unconfirmed"]
Subject = Literal["tool", "prompt", "template", "resource", "event", "instructions"]
"""The sort of text that a pin is of; a skill counts as a tool."""
_LABELS: Final[Mapping[Subject, str]] = {
    "template": "resource template ",
    "event": "event type ",
    "instructions": "instruction text",
}


def pin_name(kind: Kind, key: str) -> str:
    """The unique name of a pin: a tool's own, a skill's URI, others with their kind (`prompt:greet`)."""
    if kind in _PREFIXED:
        return _PREFIXED[kind] + key
    return _TOOL + key if key.startswith(_RESERVED) else key


def subject_of(name: str) -> tuple[Subject, str]:
    """Reverses `pin_name`; with the server's own name."""
    if name == INSTRUCTIONS:
        return "instructions", ""
    subjects: tuple[Subject, ...] = ("prompt", "template", "resource", "event", "tool")
    for subject in subjects:
        if name.startswith(f"{subject}:"):
            return subject, name[len(subject) + 1 :]
    return "tool", name


def label_of(name: str) -> str:
    """For people: `tool pay`, `prompt greet`, `instruction text`."""
    subject, key = subject_of(name)
    return _LABELS.get(subject, f"{subject} ") + key


class Fingerprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A definition at one moment: its hash, those of its members, and its text.

    `written`: the hash as written. `since`: Unix seconds. A long text keeps its ends only; then `length` is its bytes,
    and `flags` are the whole's.
    """

    digest: str
    written: str
    members: dict[str, str]
    since: float = 0.0
    definition: Raw | UnsetType = UNSET
    length: int = 0
    flags: tuple[str, ...] = ()

    @property
    def is_of_skill(self) -> bool:
        return "frontmatter" in self.members


class Pin(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text. `approved` None: new. `offered`: the current one if it differs. `by_user`: not trusted on first use."""

    approved: Fingerprint | None = None
    offered: Fingerprint | None = None
    by_user: bool = False

    def confirms(self, offered: Fingerprint) -> bool:
        return self.by_user and self.approved is not None and self.approved.digest == offered.digest


class Record(msgspec.Struct, frozen=True):
    """The pins of one server, by `pin_name`; empty if never listed. `kinds`: those whose lists were compared."""

    tools: dict[str, Pin] = {}
    server: str = ""
    config: str = ""
    version: int = _VERSION
    kinds: tuple[str, ...] = ()


class UnapprovedTool(msgspec.Struct, frozen=True):
    """An unapproved text: the members that differ, its hash, when it was seen. `tool` is a `pin_name`."""

    server: str
    tool: str
    kind: _FindingKind
    members: tuple[str, ...] = ()
    digest: str = ""
    since: float = 0.0
    is_held: bool = False

    @property
    def text(self) -> str:
        match self.kind:
            case "changed":
                return f"has changed since it was approved ({', '.join(self.members)})"
            case "new":
                return "is new and was never approved"
            case "unconfirmed":
                return "was trusted on first use, so its hints are not used"
            case _:
                return "cannot be compared with what was approved: the record of it cannot be read"


Verdict = tuple[Mapping[Origin, UnapprovedTool], frozenset[Origin]]
"""Texts that nobody may use now, and tools that a person has approved; by server and `pin_name`."""


def pinned(kind: Kind, fields: RawObject) -> RawObject:
    """The members that a pin covers; a skill's files are sorted."""
    members = {name: fields[name] for name in _MEMBERS_OF[kind] if name in fields and name != _APP}
    if kind is Kind.TOOL and (app := app_members(raw_object(fields.get("_meta", UNSET)) or {})):
        members[_APP] = Raw(object_bytes(app))
    if kind is Kind.SKILL:
        with suppress(msgspec.DecodeError, RecursionError):
            files = msgspec.json.decode(members["resources"], type=list[RawObject])
            members["resources"] = Raw(msgspec.json.encode(sorted(files, key=lambda file: bytes(file["uri"]))))
    return members


def pinned_instructions(text: str) -> RawObject:
    """The instructions that a pin covers; another hub's without its servers, which change."""
    before, opening, _ = text.partition(OPENING)
    if opening and first_sentence(before + opening, MAX_PURPOSE) == first_sentence(text, MAX_PURPOSE):
        text = before + opening
    return {_INSTRUCTIONS: as_json(text)}


def pinned_texts(snapshot: Snapshot) -> dict[str, RawObject]:
    """The pinned members by `pin_name`; a tool and a skill of one name share an entry."""
    texts: dict[str, RawObject] = {}
    for kind in _MEMBERS_OF:
        usable, _ = parse(kind, snapshot.lists.get(kind, ()), snapshot.server)
        for definition in usable:
            name = pin_name(kind, definition.key)
            texts[name] = {**texts.get(name, {}), **pinned(kind, definition.as_sent)}
    if snapshot.instructions:
        texts[INSTRUCTIONS] = pinned_instructions(snapshot.instructions)
    return texts


def tool_hash(snapshot: Snapshot | None, tool: str) -> str:
    """The hash of a tool's pinned members in a list; empty where it is not listed."""
    if snapshot is None:
        return ""
    usable, _ = parse(Kind.TOOL, snapshot.lists.get(Kind.TOOL, ()), snapshot.server)
    definitions = [pinned(Kind.TOOL, definition.as_sent) for definition in usable if definition.key == tool]
    return "+".join(fingerprint(fields).digest for fields in definitions)


def check_shown(snapshot: Snapshot, tool: str, digest: str) -> None:
    """Raises `not_approved` unless the list has the tool as a person has seen it."""
    if tool_hash(snapshot, tool) != digest:
        reason = "its process lists it in another way than a person was shown. Nothing was sent. Call it again."
        raise not_approved(f"{hide_head(tool, 200)} was not called: {reason}")


def compared_kinds(snapshot: Snapshot) -> list[str]:
    """The kinds whose lists are complete."""
    kinds = (Kind.PROMPT, Kind.TEMPLATE, Kind.EVENT)
    return [kind.value for kind in kinds if kind in snapshot.lists or not KINDS[kind].is_offered(snapshot.capabilities)]


def fingerprint(fields: RawObject, pin: Pin | None = None, *, is_ordered: bool = True) -> Fingerprint:
    """The fingerprint of `pinned` members, reused from `pin` if written alike. Null counts as absent.

    Without `is_ordered` the order of members matters; ten times as fast (50 µs).
    """
    raw = {name: fields[name] for name in ALL_MEMBERS if name in fields}
    written = sha256(msgspec.json.encode(raw)).hexdigest()[:_WRITTEN_HASH]
    for result in (pin.approved, pin.offered) if pin is not None else ():
        if result is not None and result.written == written:
            return result
    texts = {name: bytes(value) for name, value in raw.items() if bytes(value) != b"null"}
    members = {name: _canonical(value) if is_ordered else value for name, value in texts.items()}
    whole = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in members.items())
    hashes = {name: sha256(value).hexdigest()[:_FIELD_HASH] for name, value in members.items()}
    result = Fingerprint(sha256(whole).hexdigest(), written, hashes, definition=Raw(b"{%s}" % whole))
    if len(whole) < MOST_DEFINITION:
        return result
    return replace(_shortened(result, _MOST_ENDS), flags=tuple(flag_texts(ends_of_members(members, _MOST_SEARCHED))))


def _shortened(whole: Fingerprint, limit: int) -> Fingerprint:
    if not isinstance(whole.definition, Raw) or (fields := raw_object(whole.definition)) is None:
        return whole
    length = whole.length or len(bytes(whole.definition))
    texts = ends_of_members({name: bytes(value) for name, value in fields.items()}, limit)
    return replace(whole, definition=Raw(msgspec.json.encode(texts)), length=length)


def _canonical(value: bytes) -> bytes:
    """Sorted keys; unchanged if a key occurs twice."""
    try:
        ordered = msgspec.json.encode(msgspec.json.decode(value), order="sorted")
    except (msgspec.DecodeError, UnicodeError, RecursionError, OverflowError):
        return value
    return ordered if _members_in(value) == _members_in(ordered) else value


def _members_in(encoded: bytes) -> int:
    plain = encoded.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in encoded else encoded
    return b"".join(plain.split(b'"')[::2]).count(b":")


def seen(
    record: Record, offered: Mapping[str, Fingerprint], policy: Policy, at: float, kinds: Collection[str] = ()
) -> Record:
    """The record after its server offered these texts; the same object if nothing is new.

    An unknown text is approved at once, unless policy is `block` and its kind was recorded before.
    """
    before = record.tools.items() if policy == "block" else ()
    trusted = {_group(name, text) for name, pin in before if (text := pin.approved or pin.offered) is not None}
    trusted |= {*record.kinds}
    tools = record.tools
    for name, text in offered.items():
        pin = tools.get(name)
        after = _pin_after(pin, text, policy != "block" or _group(name, text) not in trusted, at)
        if after is not pin and (pin is not None or len(tools) < MOST_TOOLS):
            if tools is record.tools:
                tools = dict(tools)
            tools[name] = after
    listed = tuple(sorted({*record.kinds, *kinds}))
    return record if tools is record.tools and listed == record.kinds else replace(record, tools=tools, kinds=listed)


def _group(name: str, text: Fingerprint) -> str:
    subject, _ = subject_of(name)
    return "skill" if subject == "tool" and text.is_of_skill else subject


def _pin_after(pin: Pin | None, offered: Fingerprint, trusts: bool, at: float) -> Pin:
    if pin is None:
        offered = replace(offered, since=at)
        return Pin(approved=offered) if trusts else Pin(offered=offered)
    if pin.approved is not None and pin.approved.digest == offered.digest:
        return pin if pin.offered is None else replace(pin, offered=None)
    if pin.offered is not None and pin.offered.digest == offered.digest:
        return pin
    return replace(pin, offered=replace(offered, since=at))


def approved(record: Record, digests: Mapping[str, str], at: float) -> tuple[Record, list[str]]:
    """The record with these names approved where hashes are unchanged, and the other names."""
    tools, missed = dict(record.tools), []
    for name, digest in digests.items():
        pin = tools.get(name, Pin())
        offered = pin.offered or pin.approved
        if offered is not None and offered.digest == digest:
            tools[name] = Pin(replace(offered, since=at) if pin.offered else offered, by_user=True)
        else:
            missed.append(name)
    return replace(record, tools=tools), missed


def unconfirmed_of(server: str, record: Record, names: Iterable[str]) -> dict[str, UnapprovedTool]:
    """Listed tools with annotations that were trusted on first use."""
    findings: dict[str, UnapprovedTool] = {}
    for name in names:
        pin = record.tools.get(name, Pin())
        current = pin.approved
        if current is not None and pin.offered is None and not pin.by_user and "annotations" in current.members:
            findings[name] = UnapprovedTool(
                server=server, tool=name, kind="unconfirmed", members=(), digest=current.digest, since=current.since
            )
    return findings


def findings_of(server: str, record: Record, names: Iterable[str], policy: Policy) -> dict[str, UnapprovedTool]:
    """Findings for listed texts that are not approved, by `pin_name`."""
    findings: dict[str, UnapprovedTool] = {}
    is_held = policy == "block"
    for name in names:
        pin = record.tools.get(name)
        if pin is None:
            findings[name] = UnapprovedTool(server, name, "new", is_held=is_held)
        elif (offered := pin.offered) is not None:
            before = offered.members if pin.approved is None else pin.approved.members
            members = tuple(member for member in ALL_MEMBERS if before.get(member) != offered.members.get(member))
            kind: _FindingKind = "new" if pin.approved is None else "changed"
            findings[name] = UnapprovedTool(
                server=server, tool=name, kind=kind, members=members, digest=offered.digest, since=offered.since,
                is_held=is_held,
            )  # fmt: skip
    return findings


def without_texts(record: Record) -> Record:
    return replace(record, tools={name: _bare(pin) for name, pin in record.tools.items()})


def _bare(pin: Pin) -> Pin:
    approved, offered = (
        side and replace(side, definition=UNSET, length=0, flags=()) for side in (pin.approved, pin.offered)
    )
    return replace(pin, approved=approved, offered=offered)


_decode = msgspec.json.Decoder(Record).decode


def read(text: bytes | None) -> Record:
    """Raises: ValueError if it is not a record of this version."""
    if text is None:
        return Record()
    try:
        record = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None
    if record.version != _VERSION:
        raise ValueError(f"version {record.version}, where {_VERSION} is known")
    return record


def encoded(record: Record) -> bytes:
    """Keeps texts whole, by their ends, or not at all, as space allows; pending ones first."""
    whole, ends, tools = _MOST_TEXT, _MOST_TEXT // 2, dict(record.tools)
    for name in sorted(tools, key=lambda name: record.tools[name].offered is None):
        if (size := _size(tools[name])) <= whole:
            whole -= size
        elif (size := _size(short := _with_ends(tools[name]))) <= ends:
            ends, tools[name] = ends - size, short
        else:
            tools[name] = _bare(short)
    return msgspec.json.encode(replace(record, tools=tools)) + b"\n"


def _with_ends(pin: Pin) -> Pin:
    approved, offered = (side and _shortened(side, _FEWEST_ENDS) for side in (pin.approved, pin.offered))
    return replace(pin, approved=approved, offered=offered)


def _size(pin: Pin) -> int:
    texts = (side for side in (pin.approved, pin.offered) if side is not None)
    return sum(sum(map(len, side.flags), len(side.definition)) for side in texts if isinstance(side.definition, Raw))
