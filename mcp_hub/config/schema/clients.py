"""The client table: built-in entries, and those of `hub.clients` in their place."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeVar

import msgspec

from mcp_hub.config.findings import nearest, quoted
from mcp_hub.config.schema.fields import Amount, Count, Expose, ResultGap, Section, SoftDeadline, Text, finding
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.globs import first_match
from mcp_hub.types import UNKNOWN_CLIENT


class ClientSettings(Section):
    """A kind of client. Missing keys come from the built-in entry of this name, else from `unknown`."""

    soft_deadline: SoftDeadline | None = None
    matches: list[Text] | None = None
    max_tools: Count | None = None
    defers_tools: bool | None = None
    expose: Expose | None = None
    max_result_tokens: Amount | None = None
    partials: Literal["message", "off"] | None = None
    result_gap: ResultGap | None = None


class _BuiltIn(ClientSettings):
    """An entry of the hub's own. `first_list_wait` in seconds; `one_line`: shows one line of progress messages."""

    first_list_wait: float | None = None
    one_line: bool = False


class ClientRules(msgspec.Struct, frozen=True):
    """One client's rules, in seconds. `soft_deadline` None: never; other None: by profile."""

    max_tools: int
    defers_tools: bool
    soft_deadline: float | None
    first_list_wait: float
    expose: Expose | None = None
    max_result_tokens: int | None = None
    partials: Literal["message", "off"] = "message"
    one_line: bool = False
    result_gap: float = 0.0


_MAX_TOOLS: Final = 240
# the default timeout of the TypeScript SDK is 60 s
# the first list of an agent built with the Agents SDK of OpenAI may take 5 s
_PATIENT: Final = 8.0  # seconds for the first list of clients that wait for 20 s or more
# seconds: clients of the TypeScript SDKs lose progress that they read together with the result (docs/clients.md)
_TYPESCRIPT: Final = 0.005
_UNKNOWN: Final = _BuiltIn(
    soft_deadline=45.0, max_tools=_MAX_TOOLS, defers_tools=False, first_list_wait=3.5, result_gap=_TYPESCRIPT
)
_OPENAI: Final = 120  # tools: more than 128, some of them the client's own, are refused by OpenAI-style interfaces

BUILT_IN_CLIENTS: Final[Mapping[str, _BuiltIn]] = {
    # every progress notification restarts its idle timer, and shows on one line; it searches tools by itself
    "claude-code": _BuiltIn(
        soft_deadline="never",
        max_tools=400,
        defers_tools=True,
        first_list_wait=_PATIENT,
        one_line=True,
    ),
    # its timeout is 240 s, even with progress; it silently drops tools beyond 256
    "claude-desktop": _BuiltIn(
        soft_deadline=200.0,
        matches=["claude-ai"],
        max_tools=_MAX_TOOLS,
        first_list_wait=_PATIENT,
    ),
    # its timeout is 300 s; a server has 10 s to start, its first list included
    "codex": _BuiltIn(
        soft_deadline=240.0, matches=["codex-mcp-client"], max_tools=_OPENAI, first_list_wait=6.0, result_gap=0.0
    ),
    "cursor": _BuiltIn(matches=["cursor-vscode"], max_tools=_OPENAI, first_list_wait=_PATIENT),
    "openai": _BuiltIn(matches=["openai-mcp*"], max_tools=_OPENAI),
    # it waits for a call without a limit
    "vscode": _BuiltIn(
        soft_deadline="never", matches=["Visual Studio Code*", "VSCodium*"], max_tools=_OPENAI, first_list_wait=_PATIENT
    ),
    # their timeout is 60 s, even with progress
    "cline": _BuiltIn(soft_deadline=45.0, matches=["@cline/*"]),
    "continue": _BuiltIn(soft_deadline=45.0, matches=["continue-client", "continue-cli-client"]),
    "zed": _BuiltIn(soft_deadline=45.0, result_gap=0.0),
    # nothing is known of the limits of the entries without a deadline; `mcp-hub install` can name them
    "copilot": _BuiltIn(matches=["github-copilot*"], max_tools=_OPENAI),
    "devin": _BuiltIn(matches=["windsurf*"]),
    # its timeout is 10 min, even with progress
    "gemini": _BuiltIn(soft_deadline=540.0, matches=["gemini-cli*"], first_list_wait=_PATIENT),
    # its timeout is 300 s, even with progress
    "goose": _BuiltIn(soft_deadline=240.0, matches=["goose-*"], result_gap=0.0),
    "junie": _BuiltIn(result_gap=0.0),
    "kiro": _BuiltIn(),
    "lm-studio": _BuiltIn(matches=["lmstudio*"]),
    # progress restarts its timeout; `mcp-hub install` lets it wait for 30 s for a list
    "opencode": _BuiltIn(soft_deadline="never", first_list_wait=_PATIENT),
    "warp": _BuiltIn(result_gap=0.0),
    # a hub in front of this one: it applies these rules for its own clients
    "mcp-hub": _BuiltIn(
        soft_deadline="never",
        matches=["mcp-hub-client"],
        expose="full",
        max_result_tokens=0,
        first_list_wait=_PATIENT,
        result_gap=0.0,
    ),
    UNKNOWN_CLIENT: _UNKNOWN,
}

T = TypeVar("T")


class ClientTable:
    """Finds a client's entry, ignoring case; the file's first. `first_list_wait` replaces that of all entries, unless
    None.
    """

    def __init__(self, entries: Mapping[str, ClientSettings], first_list_wait: float | None = None) -> None:
        self._first_list_wait = first_list_wait
        written = {name.casefold(): entry for name, entry in entries.items()}
        built_in = {name: entry for name, entry in BUILT_IN_CLIENTS.items() if name not in written}
        self._entries = {**written, **built_in}
        self._tiers = [_patterns(written), _patterns(built_in)]

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def require(self, chosen: str) -> None:
        if chosen.casefold() not in self._entries:
            names = sorted(self._entries)
            message = f"unknown client {quoted(chosen)}{nearest(chosen.casefold(), names) or '.'}"
            advice = f"Known: {', '.join(names)}. hub.clients adds others."
            raise ConfigError(ConfigFinding("unknown_client", f"{message} {advice}"))

    def rules(self, client_name: str | None, chosen: str | None, *, known_only: bool = False) -> ClientRules:
        """Rules by `client_name`, or of entry `chosen`. Raises `ConfigError` for an unknown `chosen`.

        `known_only`: the deadline of `unknown` only for a chosen client.
        """
        if chosen is not None:
            self.require(chosen)
        name = self._name(client_name) if chosen is None else chosen.casefold()
        named = [entry for entry in (self._entries[name], BUILT_IN_CLIENTS.get(name)) if entry is not None]
        general = [*named, self._entries[UNKNOWN_CLIENT], _UNKNOWN]
        usual = BUILT_IN_CLIENTS.get(name, _UNKNOWN)
        with_deadline = general
        if known_only and chosen is None:
            with_deadline = [] if name == UNKNOWN_CLIENT else named
        deadline: Literal["never"] | float | None = _first(entry.soft_deadline for entry in with_deadline)
        return ClientRules(
            max_tools=_first(entry.max_tools for entry in general) or _MAX_TOOLS,
            defers_tools=bool(_first(entry.defers_tools for entry in general)),
            soft_deadline=None if deadline == "never" else deadline,
            first_list_wait=_first((self._first_list_wait, usual.first_list_wait, _UNKNOWN.first_list_wait)) or 0.0,
            expose=_first(entry.expose for entry in general),
            max_result_tokens=_first(entry.max_result_tokens for entry in general),
            partials=_first(entry.partials for entry in general) or "message",
            one_line=usual.one_line,
            result_gap=_first(entry.result_gap for entry in general) or 0.0,
        )

    def _name(self, client_name: str | None) -> str:
        name = (client_name or UNKNOWN_CLIENT).casefold()
        for patterns in self._tiers:
            if (pattern := first_match(name, patterns)) is not None:
                return patterns[pattern]
        return UNKNOWN_CLIENT


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _patterns(entries: Mapping[str, ClientSettings]) -> dict[str, str]:
    patterns = {name: name for name in entries if name != UNKNOWN_CLIENT}
    for name, entry in entries.items():
        for pattern in _first((entry.matches, BUILT_IN_CLIENTS.get(name, entry).matches)) or ():
            patterns.setdefault(pattern.casefold(), name)
    return patterns


def check_clients(clients: dict[str, ClientSettings]) -> dict[str, ClientSettings]:
    """Raises a finding for a repeated name, an empty entry, or globs for `unknown`."""
    first: dict[str, str] = {}
    for name, entry in clients.items():
        if first.setdefault(name.casefold(), name) != name:
            message = f"is the same client as {quoted(first[name.casefold()])}: case does not matter"
            raise finding("duplicate_name", message, name)
        if entry == ClientSettings():
            raise finding("missing_key", "is empty. Set one of its keys.", name)
        if name.casefold() == UNKNOWN_CLIENT and entry.matches:
            message = 'cannot have "matches": it is for every client that no other entry matches'
            raise finding("misplaced_key", message, name)
    return clients
