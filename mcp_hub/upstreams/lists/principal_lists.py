"""Lists of principals, each with an account of its own at a server. Pure."""

from collections import OrderedDict
from typing import Final

from msgspec.structs import replace

from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.types import MODERN, Kind, Snapshot
from mcp_hub.upstreams.lists.list_union import by_name

LOG_IN: Final = "log_in"
"""The tool of principals without an account."""
_MOST_REMEMBERED: Final = 4096
"""Principals whose lists are remembered."""
_DISTINCT: Final = 64
"""Different lists that are compared, so that principals with equal ones share them in memory."""


class PrincipalLists:
    """Lists by principal, equal ones once, and their union. `common` is empty, `login` for those without an account."""

    def __init__(self, name: str) -> None:
        self.common = Snapshot(server=name, era=MODERN, lists={}, is_apart=True)
        self.login = replace(self.common, lists={Kind.TOOL: (_log_in(name),)}, is_own=True)
        self._remembered: OrderedDict[str, Snapshot] = OrderedDict()
        self._distinct: list[Snapshot] = []

    def of(self, principal: str) -> Snapshot | None:
        return self._remembered.get(principal)

    def put(self, principal: str, lists: Snapshot) -> Snapshot:
        """Remembers a principal's lists, as private ones."""
        hints = {kind: replace(hint, public=False) for kind, hint in lists.hints.items()}
        apart = replace(lists, is_apart=True, announced=0, hints=hints)
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

    def union(self) -> Snapshot | None:
        """All definitions of the remembered lists by name, the first of each; what people approve."""
        if not self._distinct:
            return None
        lists = {
            kind: tuple(by_name(kind, tuple(raw for one in self._distinct for raw in one.lists.get(kind, ()))).values())
            for kind in Kind
        }
        present = {kind: raws for kind, raws in lists.items() if raws}
        return replace(self._distinct[0], lists=present, is_apart=False, warnings=())


def _log_in(server: str) -> bytes:
    text = f"Asks for an account of your own at {server}, where you are not logged in. Its tools are listed afterwards."
    return object_bytes({"name": LOG_IN, "description": text, "inputSchema": {"type": "object", "properties": {}}})
