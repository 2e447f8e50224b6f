"""A server's lists joined with those of a caller's own connection, by name; those of principals with accounts. Pure."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.protocol.capabilities import KINDS, extensions_in
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.types import MODERN, Kind, Snapshot


class ListUnion:
    """The union for one connection, whose definitions win. An entry that it no longer lists stays out."""

    def __init__(self) -> None:
        self._ever: dict[Kind, frozenset[bytes]] = {}
        self._last: tuple[Snapshot, Snapshot, Snapshot | None] | None = None

    def of(self, listed: Snapshot | None, caller: Snapshot | None) -> Snapshot | None:
        """The union, one object while neither list changes; None if either list is None."""
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


def with_kinds(listed: Snapshot, side: Snapshot, kinds: Collection[Kind]) -> Snapshot:
    """The lists with these kinds of a side connection, and its capabilities for them."""
    named = {name for kind in kinds for name in (KINDS[kind].extension, KINDS[kind].instead)}
    features = {KINDS[kind].capability for kind in kinds}
    offered = {name: value for name, value in extensions_in(side.capabilities).items() if name in named}
    return replace(
        listed,
        lists={**listed.lists, **{kind: side.lists[kind] for kind in kinds}},
        hints={**listed.hints, **{kind: side.hints[kind] for kind in kinds if kind in side.hints}},
        capabilities={
            **{name: value for name, value in side.capabilities.items() if name in features},
            **listed.capabilities,
            "extensions": {**extensions_in(listed.capabilities), **offered},
        },
    )


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
    """The list `after`, with the old bytes of unchanged definitions."""
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


LOG_IN: Final = "log_in"
"""The tool of principals without an account."""
_MOST_REMEMBERED: Final = 4096
"""Principals whose lists are remembered."""
_MOST_DEFINITIONS: Final = 10_000
"""Definitions that are shared in memory, and names in the union."""
_DISTINCT: Final = 64
"""Different lists that are compared, so that principals with equal ones share them in memory."""


class PrincipalLists:
    """Lists by principal, equal ones once, and their union. `common` is empty, `login` for those without an account."""

    def __init__(self, name: str) -> None:
        self.common = Snapshot(server=name, era=MODERN, lists={}, is_apart=True)
        self.login = replace(self.common, lists={Kind.TOOL: (_log_in(name),)}, is_own=True)
        self._remembered: OrderedDict[str, Snapshot] = OrderedDict()
        self._distinct: list[Snapshot] = []
        self._raws: dict[bytes, bytes] = {}
        self._every: dict[Kind, dict[bytes, bytes]] = {kind: {} for kind in Kind}

    def of(self, principal: str) -> Snapshot | None:
        return self._remembered.get(principal)

    def put(self, principal: str, lists: Snapshot) -> Snapshot:
        """Remembers a principal's lists, as private ones."""
        if len(self._raws) > _MOST_DEFINITIONS:
            self._raws.clear()
        hints = {kind: replace(hint, public=False) for kind, hint in lists.hints.items()}
        same = {kind: tuple(self._raws.setdefault(raw, raw) for raw in raws) for kind, raws in lists.lists.items()}
        apart = replace(lists, lists=same, is_apart=True, announced=0, hints=hints)
        shared = next((earlier for earlier in self._distinct if earlier == apart), None)
        if shared is None:
            shared = apart
            self._distinct = [*self._distinct[1 - _DISTINCT :], apart]
        self._remembered[principal] = shared
        self._remembered.move_to_end(principal)
        if len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)
        return shared

    def forget(self, principal: str) -> None:
        self._remembered.pop(principal, None)

    def union(self, lists: Snapshot) -> Snapshot | None:
        """All definitions so far by name, the first of each, for people to approve; None if `lists` add none."""
        is_new = False
        for kind, raws in lists.lists.items():
            every = self._every[kind]
            for name, raw in by_name(kind, raws).items():
                if name not in every and len(every) < _MOST_DEFINITIONS:
                    every[name] = self._raws.get(raw, raw)
                    is_new = True
        if not is_new:
            return None
        present = {kind: tuple(raws.values()) for kind, raws in self._every.items() if raws}
        return replace(lists, lists=present, is_apart=False, warnings=())


def _log_in(server: str) -> bytes:
    text = f"Asks for an account of your own at {server}, where you are not logged in. Its tools are listed afterwards."
    return object_bytes({"name": LOG_IN, "description": text, "inputSchema": {"type": "object", "properties": {}}})
