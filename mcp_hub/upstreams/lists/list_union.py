"""The lists of a server as one caller sees them, whose connection is not the listed one: the union by name.

The caller's own connection wins: its definitions, and what it no longer lists, are right for its calls. Pure.
"""

import msgspec
from msgspec.structs import replace

from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.types import Kind, Snapshot


class ListUnion:
    """The union for one connection. It knows all that this connection has ever listed: what is gone there is gone."""

    def __init__(self) -> None:
        self._ever: dict[Kind, frozenset[bytes]] = {}
        self._last: tuple[Snapshot, Snapshot, Snapshot | None] | None = None

    def of(self, listed: Snapshot | None, caller: Snapshot | None) -> Snapshot | None:
        """None where the caller sees what everybody sees. The same object as long as neither list changes."""
        if listed is None or caller is None:
            return None
        if self._last is None or self._last[0] is not listed or self._last[1] is not caller:
            self._last = listed, caller, self._united(listed, caller)
        return self._last[2]

    def _united(self, listed: Snapshot, caller: Snapshot) -> Snapshot | None:
        lists = {kind: self._joined(kind, listed.lists.get(kind, ()), caller.lists.get(kind, ())) for kind in Kind}
        if all(lists[kind] == listed.lists.get(kind, ()) for kind in Kind):
            return None
        present = {kind: raws for kind, raws in lists.items() if raws or kind in listed.lists or kind in caller.lists}
        capabilities = {**caller.capabilities, **listed.capabilities}
        return replace(listed, lists=present, capabilities=capabilities, is_apart=True)

    def _joined(self, kind: Kind, listed: tuple[bytes, ...], caller: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """In the order of the listed ones; what only the caller's connection has comes last."""
        ever, mine = self._ever.get(kind, frozenset()), by_name(kind, caller)
        self._ever[kind] = ever | mine.keys()
        if listed == caller:
            return listed
        gone, theirs = ever - mine.keys(), by_name(kind, listed)
        shared = (mine.get(name, raw) for name, raw in theirs.items() if name not in gone)
        return (*shared, *(raw for name, raw in mine.items() if name not in theirs))


class SkillUnion:
    """Lists of one connection of a server, with the skills of another one."""

    def __init__(self) -> None:
        self._last: tuple[Snapshot, Snapshot, Snapshot] | None = None

    def of(self, listed: Snapshot, other: Snapshot) -> Snapshot:
        """The union; the same object as long as neither changes."""
        if self._last is None or self._last[0] is not listed or self._last[1] is not other:
            extensions = {**listed.capabilities.get("extensions", {}), SKILLS: other.capabilities["extensions"][SKILLS]}
            united = replace(
                listed,
                lists={**listed.lists, Kind.SKILL: other.lists[Kind.SKILL]},
                hints={**listed.hints, Kind.SKILL: other.hints[Kind.SKILL]},
                capabilities={**listed.capabilities, "extensions": extensions},
            )
            self._last = listed, other, united
        return self._last[2]


def by_name(kind: Kind, raws: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """Definitions by the member that identifies them; one without it by itself."""
    names: dict[bytes, bytes] = {}
    for raw in raws:
        names.setdefault(_name(kind, raw), raw)
    return names


def _name(kind: Kind, raw: bytes) -> bytes:
    members = raw_object(msgspec.Raw(raw)) or {}
    return bytes(members.get(KINDS[kind].id_field, raw))


def settled(kind: Kind, before: tuple[bytes, ...], after: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The list `after`, in which each definition that says the same as `before` has the same bytes.

    Servers write one definition in another order of its members in their other era.
    """
    if before == after or not before:
        return after
    old = by_name(kind, before)
    return tuple(_unchanged(old.get(_name(kind, raw)), raw) for raw in after)


def _unchanged(before: bytes | None, after: bytes) -> bytes:
    if before is None or before == after or len(before) != len(after):
        return after
    return before if _ordered(before) == _ordered(after) else after


def _ordered(raw: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(raw), order="deterministic")
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        return raw
