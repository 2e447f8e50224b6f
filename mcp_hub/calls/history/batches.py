"""Makes batches of calls that have ended: texts are masked, then cut, many at a time. All of it runs in a thread."""

import hmac
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, Protocol

import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.history.recent import SessionClients, shown_principal
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.streams.stored import asked, own_name
from mcp_hub.events import Cancelled, Ending, Failed
from mcp_hub.masking import hide, hide_head, hide_start, hide_within
from mcp_hub.stores.history.base import (
    CUT_ARGUMENTS,
    CUT_RESULT,
    DURABLE,
    MASKED_ARGUMENTS,
    MASKED_RESULT,
    Batch,
    CallGroup,
    CallTexts,
    HistoryLimits,
    Keeping,
    group_line,
)
from mcp_hub.types import RawJson

VALUE: Final = 4096
"""Characters of a value of the arguments, and of a result, that are kept."""
ARGUMENTS: Final = 64 << 10
"""Bytes of all arguments that are kept, with their values cut; of more only the beginning."""
_MOST_DECODED: Final = 1 << 20
"""Bytes of arguments that are looked through for long values."""
_PIECE: Final = 64 << 10
"""Characters of texts that are masked together."""
_BETWEEN: Final = "\0"
"""Parts texts that are masked together; no JSON has it."""
_NAME: Final = 200
_MESSAGE: Final = 200
"""Characters of a tool's name, and of the reason of a failure."""
_LARGEST: Final = (1 << 32) - 1
_HASH: Final = 32
_STATUS: Final = ("completed", "tool_error", "failed", "cancelled", "timed_out")
"""By outcome."""


_Raw = tuple[RawJson | None, RawJson | None, int]
"""The arguments, the result or its beginning, and the bytes of the whole result."""
EndedCall = tuple[Call, Any, int, int, Outcome, float, float | None, float, bool]
"""A call, its result or its ending, bytes of its result and of its arguments, its outcome, three times (start,
turn, end), and whether it is durable.
"""


class ToolKeeping(msgspec.Struct, frozen=True):
    """The rule for calls of one tool: nothing is kept, or all but arguments that the settings `supply`.

    None stands for a fixed argument, else it is the default, which goes where the value is the same.
    """

    is_kept: bool = True
    supplied: Mapping[str, object] = {}


class JournalRules(msgspec.Struct, frozen=True):
    """The rules of now; `of_tool` is asked with a server and its own name of a tool."""

    keeping: Literal["off"] | Keeping
    limits: HistoryLimits
    of_tool: Callable[[str, str], ToolKeeping]


class DefinitionSource(Protocol):
    """The definitions of tools."""

    def now(self) -> object:
        """Those of this moment. Quick."""

    def digest(self, definitions: object, server: str, tool: str) -> str:
        """Of one of them, as the server names it; empty if there is none. May be called in a thread."""


class BatchMaker:
    """Makes batches, in a thread; one at a time."""

    def __init__(
        self, hub: str, clients: SessionClients, definitions: DefinitionSource, key: Callable[[], bytes]
    ) -> None:
        self.hub = hub
        self.definitions = definitions
        self._clients = clients
        self._find_key = key
        self._key = b""
        self._count = 0
        self._last = 0.0

    def made(
        self, calls: Sequence[EndedCall], definitions: tuple[object, object], rules: JournalRules, wall: float
    ) -> tuple[Batch, list[CallTexts]] | None:
        """The batch of these calls and their texts, if they are kept; `wall` makes Unix seconds of their times."""
        if rules.keeping == "off":
            return None
        groups: dict[object, tuple[int, Mapping[str, object]] | None] = {}
        lines: dict[str, int] = {}
        columns, texts = _Columns(), list[_Raw]()
        for call, ending, size, given, outcome, started, began, now, is_durable in calls:
            params = call.params
            tool = params.get("name", params.get("uri", b""))
            key = (call.session, call.upstream, call.method, call.principal, outcome, bytes(tool))
            if key not in groups:
                groups[key] = self._group(call, outcome, definitions, rules, lines)
            if (group := groups[key]) is None:
                continue
            mark, supplied = group
            if outcome > Outcome.TOOL_ERROR:
                columns.notes[len(columns.ids)] = _note(ending, rules.keeping)
                ending = None
            self._last = max(self._last, now + wall)  # the clock of the system may be set back
            waited = (now if began is None else began) - started
            columns.add(call.id, mark, self._last, now - started, waited, given, size, is_durable)
            if rules.keeping != "none":
                arguments = params.get("arguments")
                texts.append((_reduced(arguments, supplied) if supplied else arguments, ending, size))
        if not columns.ids:
            return None
        base, self._count = self._count, self._count + len(columns.ids)
        made = self._texts(texts, rules.keeping, columns.flags)
        return columns.batch(self.hub, base, "\n".join(lines)), made

    def _group(
        self,
        call: Call,
        outcome: Outcome,
        definitions: tuple[object, object],
        rules: JournalRules,
        lines: dict[str, int],
    ) -> tuple[int, Mapping[str, object]] | None:
        """The number of its group in `lines`, and the arguments that the settings supply; None: it is not kept."""
        assert rules.keeping != "off"
        tool = own_name(call)
        keeping = rules.of_tool(call.upstream, tool)
        if not keeping.is_kept:
            return None
        name, digest = asked(call), ""
        if call.method == "tools/call":
            before, after = (self.definitions.digest(own, call.upstream, tool) for own in definitions)
            digest = after if before == after else ""
        elif rules.keeping != "full" and call.method != "prompts/get":
            tool = name = call.method  # a URI is an argument
        client = hide_head(self._clients.name_of(call.session), _NAME)
        line = group_line(CallGroup(
            call.upstream, hide_head(tool, _NAME) or call.method, hide_head(name, _NAME), call.method,
            shown_principal(call.principal), client, _STATUS[outcome], rules.keeping, digest,
        ))  # fmt: skip
        return lines.setdefault(line, len(lines)), keeping.supplied

    def _texts(self, calls: Sequence[_Raw], keeping: str, flags: bytearray) -> list[CallTexts]:
        if keeping == "hash":
            return [CallTexts(self._hash(arguments)) for arguments, _, _ in calls]
        made = TextMasker(2 * len(calls))
        for place, (arguments, result, size) in enumerate(calls):
            if arguments is not None:
                flags[place] |= made.take_arguments(2 * place, arguments)
            if result is not None:
                flags[place] |= made.take_result(2 * place + 1, result, size)
        for place in made.finished():
            flags[place // 2] |= MASKED_RESULT if place % 2 else MASKED_ARGUMENTS
        return [CallTexts(*made.texts[at : at + 2]) for at in range(0, 2 * len(calls), 2)]

    def _hash(self, arguments: RawJson | None) -> str | None:
        if arguments is None:
            return None
        self._key = self._key or self._find_key()
        return hmac.digest(self._key, bytes(arguments), "sha256").hex()[:_HASH]


class _Columns:
    """The columns of a batch while it is made."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.flags = bytearray()
        self.notes: dict[int, tuple[str, str]] = {}
        self._marks, self._sizes = array("H"), array("I")
        self._ended, self._took, self._waited = array("d"), array("d"), array("d")

    def add(
        self, id_: str, mark: int, ended: float, took: float, waited: float, given: int, size: int, is_durable: bool
    ) -> None:
        """One call more."""
        self.ids.append(id_)
        self._marks.append(mark)
        self._ended.append(ended)
        self._took.append(took)
        self._waited.append(waited)
        self._sizes.append(given if given < _LARGEST else _LARGEST)
        self._sizes.append(size if size < _LARGEST else _LARGEST)
        self.flags.append(DURABLE if is_durable else 0)

    def batch(self, hub: str, base: int, groups: str) -> Batch:
        """All of them."""
        ended, took, waited = (column.tobytes() for column in (self._ended, self._took, self._waited))
        ids, marks, sizes = " ".join(self.ids), self._marks.tobytes(), self._sizes.tobytes()
        return Batch(hub, base, groups, marks, ids, ended, took, waited, sizes, bytes(self.flags), self.notes)


def _reduced(arguments: RawJson | None, supplied: Mapping[str, object]) -> RawJson | None:
    """The arguments without those that the settings supply: their values are not for callers."""
    try:
        values: dict[str, Any] = msgspec.json.decode(arguments or b"{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        return None
    own = {
        name: value
        for name, value in values.items()
        if name not in supplied or (supplied[name] is not None and supplied[name] != value)
    }
    return msgspec.json.encode(own)


def _note(ending: Ending, keeping: Keeping) -> tuple[str, str]:
    """The code of a failure, and the reason, which may repeat arguments."""
    if isinstance(ending, Failed):
        code, message = ending.error.symbol, ending.error.message
    else:
        code, message = "cancelled", (ending.reason or "") if isinstance(ending, Cancelled) else ""
    return code, hide_head(message, _MESSAGE) if keeping == "full" else ""


class TextMasker:
    """Texts by place, of which short ones are masked together: each time costs as much as a hundred characters do."""

    def __init__(self, count: int) -> None:
        self.texts: list[str | None] = [None] * count
        self._plain: list[int] = []
        self._escaped: list[int] = []
        self._masked: list[int] = []

    def take_arguments(self, place: int, raw: RawJson) -> int:
        """Puts arguments there, of which long values are cut; their flags."""
        if len(raw) <= VALUE:
            self._put(place, bytes(raw))
            return 0
        text, flags = _cut_arguments(bytes(raw))
        self.texts[place] = text
        return flags

    def take_result(self, place: int, raw: RawJson, size: int) -> int:
        """Puts the beginning of a result there, which had `size` bytes; its flags."""
        if size <= VALUE:
            self._put(place, bytes(raw))
            return 0
        text, is_masked = hide_start(bytes(raw), VALUE)
        self.texts[place] = text
        return CUT_RESULT | (MASKED_RESULT if is_masked else 0)

    def _put(self, place: int, raw: bytes) -> None:
        self.texts[place] = raw.decode("utf-8", "replace").replace(_BETWEEN, "")
        (self._escaped if b"\\" in raw or b"%" in raw else self._plain).append(place)

    def finished(self) -> list[int]:
        """Masks the short ones; the places of those in which something was masked."""
        for places in (self._plain, self._escaped):
            for piece in self._pieces(places):
                self._mask(piece)
        return self._masked

    def _pieces(self, places: Sequence[int]) -> Iterator[list[int]]:
        piece: list[int] = []
        size = 0
        for place in places:
            piece.append(place)
            size += len(self.texts[place] or "")
            if size >= _PIECE:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def _mask(self, places: Sequence[int]) -> None:
        text = _BETWEEN.join([self.texts[place] or "" for place in places])
        if (hidden := hide(text)) == text:
            return
        parts = hidden.split(_BETWEEN)
        if len(parts) != len(places):  # a secret has such a character
            parts = [hide(self.texts[place] or "") for place in places]
        for place, part in zip(places, parts, strict=True):
            if part != self.texts[place]:
                self._masked.append(place)
                self.texts[place] = _json_masked(self.texts[place] or "", part)


def _json_masked(text: str, masked: str) -> str:
    """The masked text, by its values where a mask in the text would leave no JSON."""
    try:
        msgspec.json.decode(masked)
    except (ValueError, RecursionError):
        with suppress(ValueError, RecursionError):
            return hide(msgspec.json.encode(hide_within(msgspec.json.decode(text))).decode())
    return masked


def _cut_arguments(raw: bytes) -> tuple[str, int]:
    """Arguments with long values cut, and their flags; a text that is not JSON, or too long in all, is cut as it is."""
    flags = 0

    def short(value: str) -> str:
        nonlocal flags
        if len(value) <= VALUE:
            hidden = hide(value)
            flags |= MASKED_ARGUMENTS if hidden != value else 0
            return hidden
        hidden, is_masked = hide_start(value.encode("utf-8", "replace"), VALUE)
        flags |= CUT_ARGUMENTS | (MASKED_ARGUMENTS if is_masked else 0)
        return f"{hidden}…"

    if len(raw) <= _MOST_DECODED:
        with suppress(ValueError, RecursionError):
            encoded = msgspec.json.encode(hide_within(msgspec.json.decode(raw), short))
            if len(encoded) <= ARGUMENTS:
                text = encoded.decode()
                hidden = hide(text)
                return hidden, flags | (MASKED_ARGUMENTS if hidden != text else 0)
    text, is_masked = hide_start(raw, VALUE)
    return text, CUT_ARGUMENTS | (MASKED_ARGUMENTS if is_masked else 0)
