"""How long each client waits for a call (`hub.clients`): what is built in, and the file's entries before it.

What clients do is reported, differs and changes (streams.md §0), hence a table that every entry can be replaced in.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mcp_hub.config.findings import nearest, quoted
from mcp_hub.config.globs import best_match
from mcp_hub.config.scalars import SoftDeadline, Text
from mcp_hub.config.section import Section, finding
from mcp_hub.errors import ConfigError

__all__ = ["BUILT_IN_CLIENTS", "UNKNOWN_CLIENT", "ClientSettings", "ClientTable", "check_clients"]


class ClientSettings(Section):
    """One kind of client, known by the entry's name and by `matches`, globs on the name that it gives itself.

    `soft_deadline` in seconds is how long a call may take before it is answered with what there is; "never" lets the
    client wait. `matches` left out is that of the built-in entry of this name.
    """

    soft_deadline: SoftDeadline
    matches: list[Text] | None = None


UNKNOWN_CLIENT: Final = "unknown"
"""The entry for every client that no other entry matches."""

BUILT_IN_CLIENTS: Final[Mapping[str, ClientSettings]] = {
    # its idle timer starts again with every progress notification
    "claude-code": ClientSettings(soft_deadline="never"),
    # cuts at 240 s whatever it hears
    "claude-desktop": ClientSettings(soft_deadline=200.0, matches=["claude-ai"]),
    # cuts at 300 s
    "codex": ClientSettings(soft_deadline=240.0, matches=["codex-mcp-client"]),
    # the TypeScript SDK cuts at 60 s unless asked otherwise
    UNKNOWN_CLIENT: ClientSettings(soft_deadline=45.0),
}


class ClientTable:
    """Finds a client's entry. Case does not matter; the file's entries go before the built-in ones."""

    def __init__(self, own: Mapping[str, ClientSettings]) -> None:
        written = {name.casefold(): entry for name, entry in own.items()}
        others = {name: entry for name, entry in BUILT_IN_CLIENTS.items() if name not in written}
        self._entries = {**written, **others}
        self._tiers = [_patterns(written), _patterns(others)]

    def require(self, chosen: str) -> ClientSettings:
        """The entry called `chosen`. Raises: ConfigError that names the known ones."""
        entry = self._entries.get(chosen.casefold())
        if entry is None:
            known = sorted(self._entries)
            raise ConfigError(
                f"unknown client {quoted(chosen)}{nearest(chosen.casefold(), known) or ';'} "
                f"known: {', '.join(known)}; hub.clients adds others"
            )
        return entry

    def find(self, client_name: str | None) -> ClientSettings:
        """The entry for a client that calls itself `client_name`; `unknown`'s when no other matches."""
        return self.known(client_name) or self._entries[UNKNOWN_CLIENT]

    def known(self, client_name: str | None) -> ClientSettings | None:
        """The entry that such a client matches, other than `unknown`'s."""
        name = (client_name or UNKNOWN_CLIENT).casefold()
        for patterns in self._tiers:
            if (pattern := best_match(name, patterns)) is not None:
                return self._entries[patterns[pattern]]
        return None


def _patterns(entries: Mapping[str, ClientSettings]) -> dict[str, str]:
    """Names and globs, folded, in written order, to the entry that each belongs to; the first to say one has it."""
    found = {name: name for name in entries if name != UNKNOWN_CLIENT}
    for name, entry in entries.items():
        for pattern in _matches(name, entry):
            found.setdefault(pattern.casefold(), name)
    return found


def _matches(name: str, entry: ClientSettings) -> Iterable[str]:
    built_in = BUILT_IN_CLIENTS.get(name)
    return (entry.matches if entry.matches is not None or built_in is None else built_in.matches) or ()


def check_clients(clients: dict[str, ClientSettings]) -> dict[str, ClientSettings]:
    """Raises: a finding about an entry that says another one's name, or `unknown` with globs."""
    first: dict[str, str] = {}
    for name, entry in clients.items():
        if first.setdefault(name.casefold(), name) != name:
            raise finding(f"the same client as {quoted(first[name.casefold()])}: case does not matter", name)
        if name.casefold() == UNKNOWN_CLIENT and entry.matches:
            raise finding('takes no "matches": it is for every client that no other entry matches', name)
    return clients
