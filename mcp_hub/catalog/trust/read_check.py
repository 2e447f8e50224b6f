"""The last look at a call by `read_tool`: the process that gets it has to list the tool as read-only, too.

One server may list a tool differently: in the other era, in the process of another session, after a restart.
"""

from collections.abc import Callable

import msgspec

from mcp_hub.call import Call
from mcp_hub.catalog.definitions import Definition, parse
from mcp_hub.catalog.discovery.meta_tools import not_read_only
from mcp_hub.catalog.overrides import find_override, overridden
from mcp_hub.catalog.rules import ServerRules
from mcp_hub.types import Kind, Snapshot


class ReadCheck(msgspec.Struct, frozen=True):
    """`rules` are those of a server; `is_confirmed` says whether a person has approved one of its definitions."""

    rules: Callable[[str], ServerRules]
    is_confirmed: Callable[[str, Definition], bool]

    def check(self, call: Call, snapshot: Snapshot) -> None:
        """Raises `NotReadOnly` for a call of a tool that this list does not show as read-only."""
        tool = msgspec.json.decode(call.params["name"], type=str)
        usable, _ = parse(Kind.TOOL, snapshot.lists.get(Kind.TOOL, ()), call.upstream)
        if any(own.key == tool and not self._is_read_only(call.upstream, own) for own in usable):
            raise not_read_only(tool if call.asked is msgspec.UNSET else msgspec.json.decode(call.asked, type=str))

    def _is_read_only(self, server: str, own: Definition) -> bool:
        rules, is_approved = self.rules(server), self.is_confirmed(server, own)
        found = overridden(own, find_override(rules.overrides, own.key), rules.hints, is_approved=is_approved)
        return found.traits.hints.read_only
