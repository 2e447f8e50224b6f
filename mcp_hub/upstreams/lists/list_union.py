"""Joins a server's lists with those of a caller's own connection, by name. Pure."""

import msgspec
from msgspec.structs import replace

from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.protocol.kinds import KINDS
from mcp_hub.types import Kind, Snapshot


class ListUnion:
    """The union for one connection, whose definitions win. An entry that it no longer lists stays out."""

    def __init__(self) -> None:
        self._ever: dict[Kind, frozenset[bytes]] = {}
        self._last: tuple[Snapshot, Snapshot, Snapshot | None] | None = None

    def of(self, listed: Snapshot | None, caller: Snapshot | None) -> Snapshot | None:
        """The union, the same object while neither list changes; None if either list is None."""
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
        ever, mine = self._ever.get(kind, frozenset()), by_name(kind, caller)
        self._ever[kind] = ever | mine.keys()
        if listed == caller:
            return listed
        gone, theirs = ever - mine.keys(), by_name(kind, listed)
        shared = (mine.get(name, raw) for name, raw in theirs.items() if name not in gone)
        return (*shared, *(raw for name, raw in mine.items() if name not in theirs))


def by_name(kind: Kind, raws: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """Definitions by their identifying member; one without it by its bytes."""
    names: dict[bytes, bytes] = {}
    for raw in raws:
        names.setdefault(_name(kind, raw), raw)
    return names


def _name(kind: Kind, raw: bytes) -> bytes:
    members = raw_object(msgspec.Raw(raw)) or {}
    return bytes(members.get(KINDS[kind].id_field, raw))


def settled(kind: Kind, before: tuple[bytes, ...], after: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The list `after`, with the old bytes of definitions whose content is unchanged."""
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
