"""What changed from one view to another: the lists that differ, and how to turn the old ones into the new."""

from collections.abc import Mapping

import msgspec

from mcp_hub.catalog.entries import Entry
from mcp_hub.catalog.view import CatalogView
from mcp_hub.types import Kind

__all__ = ["ListDiff", "ViewDiff", "apply", "diff"]


class ListDiff(msgspec.Struct, frozen=True):
    """What turns one list into another: ids that go, entries that are new or changed, and the ids in final order."""

    removed: tuple[str, ...]
    upserted: tuple[Entry, ...]
    order: tuple[str, ...]


class ViewDiff(msgspec.Struct, frozen=True):
    """The lists that differ; `bool(diff)` says whether any does."""

    lists: Mapping[Kind, ListDiff]

    def __bool__(self) -> bool:
        return bool(self.lists)


def diff(a: CatalogView, b: CatalogView) -> ViewDiff:
    """What changed from `a` to `b`, origins included: a name that moved to another server is an upsert."""
    return ViewDiff({kind: _list_diff(a, b, kind) for kind in Kind if a.entries(kind) != b.entries(kind)})


def _list_diff(a: CatalogView, b: CatalogView, kind: Kind) -> ListDiff:
    return ListDiff(
        removed=tuple(old.exported for old in a.entries(kind) if b.find(kind, old.exported) is None),
        upserted=tuple(new for new in b.entries(kind) if a.find(kind, new.exported) != new),
        order=tuple(new.exported for new in b.entries(kind)),
    )


def apply(entries: Mapping[Kind, tuple[Entry, ...]], change: ViewDiff) -> dict[Kind, tuple[Entry, ...]]:
    """`apply(entries of a, diff(a, b))` is the entries of b."""
    return {kind: _applied(listed, change.lists.get(kind)) for kind, listed in entries.items()}


def _applied(listed: tuple[Entry, ...], change: ListDiff | None) -> tuple[Entry, ...]:
    if change is None:
        return listed
    known = {entry.exported: entry for entry in (*listed, *change.upserted)}
    for exported in change.removed:
        del known[exported]
    return tuple(known[exported] for exported in change.order)
