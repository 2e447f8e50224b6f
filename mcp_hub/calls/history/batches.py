"""Makes batches of ended calls, large ones in a thread; texts are masked, then cut."""

import hmac
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import sub
from struct import pack
from types import MappingProxyType
from typing import Final, Literal, TypeVar

import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.history.recent import first_text, shown_principal
from mcp_hub.calls.history.waiting import MOST_DECODED, VALUE, Portion
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.reading.stored import exported_name, own_name
from mcp_hub.events import Cancelled, Ending, Failed
from mcp_hub.masking import hide, hide_head, hide_start, hide_within
from mcp_hub.protocol.shape.stream_events import code_of
from mcp_hub.stores.history.base import (
    COMPLETED,
    CUT_ARGUMENTS,
    CUT_RESULT,
    DURABLE,
    MASKED_ARGUMENTS,
    MASKED_RESULT,
    Batch,
    CallGroup,
    HistoryLimits,
    Keeping,
    group_line,
    running_number,
)
from mcp_hub.types import JsonObject

ARGUMENTS: Final = 64 << 10
"""Bytes kept of all arguments, with values cut."""
_PIECE: Final = 16 << 10
"""Characters masked together."""
_BETWEEN: Final = "\0"
"""Separates texts that are masked together; JSON never has it."""
_NAME: Final = 200
_MESSAGE: Final = 200
"""Characters of a tool's name, and of a failure's reason."""
_LARGEST: Final = (1 << 32) - 1
_HASH: Final = 32
_STATUS: Final = ("completed", "tool_error", "failed", "cancelled", "timed_out")
_NO_FAILURE: Final = (COMPLETED, 0, 0, 0, 0)
"""By outcome, both."""


class ToolKeeping(msgspec.Struct, frozen=True):
    """Whether a tool's calls are kept, and the arguments of its settings.

    `fixed` arguments are never kept, those with a default only if their value differs.
    """

    is_kept: bool = True
    defaults: Mapping[str, object] = {}
    fixed: Mapping[str, object] = {}

    @property
    def supplies(self) -> bool:
        return bool(self.defaults or self.fixed)


_T = TypeVar("_T")
Digest = Callable[[str, str], str]
"""The digest of a definition by server and tool, or empty. Thread-safe."""


def no_digest(server: str, tool: str) -> str:
    """The digest of a definition that is not known."""
    return ""


class JournalRules(msgspec.Struct, frozen=True):
    """Rules and definitions of tools at one time; `of_tool` takes a server and its own tool name."""

    keeping: Literal["off"] | Keeping
    limits: HistoryLimits
    of_tool: Callable[[str, str], ToolKeeping]
    digest: Digest = no_digest


class BatchMaker:
    """Makes batches, one at a time; those that are not quick in a thread."""

    def __init__(self, hub: str, definitions: Callable[[], Digest], key: Callable[[], bytes]) -> None:
        self.hub = hub
        self.definitions = definitions
        self._find_key = key
        self._key = b""
        self._count = 0
        self._last = 0.0

    def definition(self, terms: JournalRules, server: str, tool: str) -> str:
        """A digest of definition and supplied arguments; empty without a tool. May block at first."""
        digest, keeping = terms.digest(server, tool), terms.of_tool(server, tool)
        if not digest or not keeping.supplies:
            return digest
        text = msgspec.json.encode([digest, keeping.defaults, keeping.fixed], order="sorted")
        return hmac.digest(self._secret(), text, "sha256").hex()

    def _secret(self) -> bytes:
        self._key = self._find_key()  # replicas' key comes with their store
        return self._key

    def is_quick(self, portion: Portion, rules: JournalRules) -> bool:
        """Whether the batch takes under 0.2 ms, with no key to be read."""
        if not portion.is_small:
            return False
        keyless = rules.keeping != "hash" and not any(
            rules.of_tool(call.upstream, own_name(call)).supplies for call, _ in portion.groups.firsts
        )
        return keyless or bool(self._key)

    def make_running(
        self, portion: Portion, terms: tuple[JournalRules, JournalRules], wall: float
    ) -> tuple[Batch, bytes] | None:
        """The batch of one running call, as shown once its hub is gone; None: not kept.

        `terms` are those at its begin, and the present ones.
        """
        count, last = self._count, self._last
        batches = self.make(portion, terms, wall)
        self._count, self._last = count, last
        if not batches:
            return None
        batch, texts = batches[0]
        return msgspec.structs.replace(batch, base=running_number(batch.ids)), texts

    def make(
        self,
        portion: Portion,
        terms: tuple[JournalRules, JournalRules],
        wall: float,
        begun: Mapping[str, JournalRules] = MappingProxyType({}),
    ) -> list[tuple[Batch, bytes]]:
        """The batch of a portion; `wall` converts its times to Unix seconds.

        `terms` are those at the first call's end, and the present ones; `begun` has those at a call's begin.
        """
        terms = terms if portion.texts is not None else (terms[0], _textless(terms[1]))
        lines, rules = dict[str, int](), terms[1]
        if rules.keeping == "off":
            return []
        if not any(groups := [self._group(*first, terms, lines) for first in portion.groups.firsts]):
            return []
        of_groups: Sequence[int] = ()
        if begun or None in groups:
            of_groups = portion.groups.spread(range(len(groups)), len(portion))
        places: Sequence[int] = range(len(portion))
        if None in groups:
            places = [index for index, number in enumerate(of_groups) if groups[number] is not None]
        ids, flags = portion.ids, _flags(portion)
        texts = self._texts(portion, rules.keeping, [group and group[1] for group in groups], places, flags)
        marks = portion.groups.spread([0 if group is None else group[0] for group in groups], len(portion))
        for index in [index for index, id_ in enumerate(ids) if id_ in begun] if begun else ():
            group = self._group(*portion.groups.firsts[of_groups[index]], (begun[ids[index]], terms[1]), lines)
            marks[index] = marks[index] if group is None else group[0]
        base, self._count = self._count, self._count + len(places)
        ended, took, waited = self._times(portion, places, wall)
        batch = Batch(
            hub=self.hub, base=base, groups="\n".join(lines), marks=array("H", _at(marks, places)).tobytes(),
            ids=" ".join(_at(ids, places)), ended=ended, took=took, waited=waited,
            sizes=_sizes(portion, places, rules.keeping),
            flags=bytes(_at(flags, places)), notes=_notes(portion, places, rules.keeping, texts),
        )  # fmt: skip
        return [(batch, texts)]

    def _times(self, portion: Portion, places: Sequence[int], wall: float) -> tuple[bytes, bytes, bytes]:
        """The columns `ended`, `took` and `waited`."""
        ends, starts = _at(portion.ends, places), _at(portion.starts, places)
        wall = max(wall, self._last - ends[0])  # the clock of the system may be set back
        ended = [end + wall for end in ends]
        self._last = ended[-1]
        waited = [0.0] * len(portion) if portion.begins else []
        for index, begin in portion.begins.items():
            waited[index] = (portion.ends[index] if begin is None else begin) - portion.starts[index]
        doubles = f"{len(ends)}d"  # arrays would be filled in twice the time
        took = pack(doubles, *map(sub, ends, starts))
        return pack(doubles, *ended), took, pack(doubles, *_at(waited, places)) if waited else b""

    def _group(
        self, call: Call, outcome: Outcome, terms: tuple[JournalRules, JournalRules], lines: dict[str, int]
    ) -> tuple[int, ToolKeeping] | None:
        """The group's number in `lines`, and its tool's rule; None: not kept."""
        rules = terms[1]
        assert rules.keeping != "off"
        tool = own_name(call)
        keeping = rules.of_tool(call.upstream, tool)
        if not keeping.is_kept:
            return None
        name, digest = exported_name(call), ""
        if call.method == "tools/call":
            before, after = (self.definition(each, call.upstream, tool) for each in terms)
            digest = after if before == after else ""
        elif rules.keeping != "full" and call.method != "prompts/get":
            tool = name = call.method  # a URI is an argument
        client = hide_head(call.client_name, _NAME)
        line = group_line(
            CallGroup(
                server=call.upstream,
                tool=hide_head(tool, _NAME) or call.method,
                name=hide_head(name, _NAME),
                method=call.method,
                principal=shown_principal(call.principal),
                client=client,
                status=_STATUS[outcome],
                keeping=rules.keeping,
                definition=digest,
                parent=call.parent or "",
            )
        )
        return lines.setdefault(line, len(lines)), keeping

    def _texts(
        self,
        portion: Portion,
        keeping: str,
        rules: Sequence[ToolKeeping | None],
        places: Sequence[int],
        flags: bytearray,
    ) -> bytes:
        """Encoded texts of calls at `places`."""
        texts = portion.texts
        if texts is None or keeping == "none":
            return b""
        is_supplied = any(rule is not None and rule.supplies for rule in rules)
        whole = texts.joined[:-1].decode("utf-8", "replace")
        is_plain = keeping == "full" and not texts.long and not is_supplied and len(places) == len(portion)
        if is_plain and whole.count(_BETWEEN) == 2 * len(places) - 1 and all(
            hide(piece) == piece for piece in _pieces(whole)
        ):  # fmt: skip
            return whole.encode()
        fields, long = texts.fields(), dict(texts.long)  # the audit takes them, too
        for index, rule in enumerate(portion.groups.spread(rules, len(portion))) if is_supplied else ():
            if rule is not None and rule.supplies and texts.sizes[2 * index]:
                cut = long.pop(index, None)
                arguments, result = (fields[2 * index], fields[2 * index + 1]) if cut is None else cut
                fields[2 * index : 2 * index + 2] = reduced(arguments, rule), result
        if keeping == "hash":
            return self._hashes(fields, long, places)
        return masked_texts(fields, long, texts.sizes[1::2], places, flags)

    def _hashes(self, fields: Sequence[bytes], long: Mapping[int, tuple[bytes, bytes]], places: Sequence[int]) -> bytes:
        return hashed_arguments(self._secret(), fields, long, places)


def _flags(portion: Portion) -> bytearray:
    outcomes = [_NO_FAILURE[outcome] for _, outcome in portion.groups.firsts]
    flags = bytearray(portion.groups.spread(outcomes, len(portion)))
    for index in portion.durable:
        flags[index] |= DURABLE
    return flags


def hashed_arguments(
    key: bytes, fields: Sequence[bytes], long: Mapping[int, tuple[bytes, bytes]], places: Sequence[int]
) -> bytes:
    """Hashes of the arguments of calls at `places`, each with an empty text for the result."""
    whole = (long[index][0] if index in long else fields[2 * index] for index in places)
    hashes = (hmac.digest(key, text, "sha256").hex()[:_HASH].encode() if text else b"" for text in whole)
    return b"\0".join(part for digest in hashes for part in (digest, b""))


def _textless(terms: JournalRules) -> JournalRules:
    """The terms of calls without texts, under any later rules."""
    return terms if terms.keeping == "off" else msgspec.structs.replace(terms, keeping="none")


def _at(column: Sequence[_T], places: Sequence[int]) -> Sequence[_T]:
    return column if len(column) == len(places) else [column[index] for index in places]


def _sizes(portion: Portion, places: Sequence[int], keeping: Keeping) -> bytes:
    if portion.texts is None or keeping == "none":
        return b""
    sizes: Iterable[int] = portion.texts.sizes
    if len(places) < len(portion):
        sizes = chain.from_iterable(portion.texts.sizes[2 * index : 2 * index + 2] for index in places)
    return array("I", [min(size, _LARGEST) for size in sizes]).tobytes()


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while start <= len(text):
        end = text.find(_BETWEEN, start + _PIECE)
        yield text[start : end if end >= 0 else len(text)]
        start = end + 1 if end >= 0 else len(text) + 1


def reduced(arguments: bytes, keeping: ToolKeeping) -> bytes:
    """The arguments without those that the settings supply."""
    try:
        values = msgspec.json.decode(arguments or b"{}", type=JsonObject)
    except (ValueError, RecursionError):
        return b""
    remaining = {
        name: value
        for name, value in values.items()
        if name not in keeping.fixed and not (name in keeping.defaults and _is_same(keeping.defaults[name], value))
    }
    return msgspec.json.encode(remaining)


def _is_same(default: object, value: object) -> bool:
    return msgspec.json.encode(default, order="sorted") == msgspec.json.encode(value, order="sorted")


def _notes(portion: Portion, places: Sequence[int], keeping: Keeping, texts: bytes) -> dict[int, tuple[str, str]]:
    notes, endings = dict[int, tuple[str, str]](), portion.endings
    if endings:
        notes = {number: _note(endings[index], keeping) for number, index in enumerate(places) if index in endings}
    if keeping == "full" and texts and (errors := portion.tool_errors(places)):
        results = texts.decode().split(_BETWEEN)[1::2]
        notes |= {number: ("", first_text(results[number])) for number in errors}
    return notes


def _note(ending: Ending, keeping: Keeping) -> tuple[str, str]:
    if isinstance(ending, Failed):
        code, message = code_of(ending.error), ending.error.message
    else:
        code, message = "cancelled", (ending.reason or "") if isinstance(ending, Cancelled) else ""
    return code, hide_head(message, _MESSAGE) if keeping == "full" else ""


def masked_texts(
    fields: Sequence[bytes],
    long: Mapping[int, tuple[bytes, bytes]],
    sizes: Sequence[int],
    places: Sequence[int],
    flags: bytearray,
) -> bytes:
    """Texts of calls at `places`, masked and cut; sets `flags`. `sizes` are results'."""
    plain = [field.decode("utf-8", "replace").replace(_BETWEEN, "") for field in fields]
    texts = _masked(plain)
    for index, (before, after) in enumerate(zip(plain, texts, strict=True)):
        if before != after:
            texts[index] = _json_masked(before, after)
            flags[index // 2] |= MASKED_RESULT if index % 2 else MASKED_ARGUMENTS
    for index, (arguments, result) in long.items():
        text, cut_flags = _cut_arguments(arguments)
        beginning, is_masked = hide_start(result, VALUE)
        flags[index] |= cut_flags | (MASKED_RESULT if is_masked else 0) | (CUT_RESULT if sizes[index] > VALUE else 0)
        texts[2 * index : 2 * index + 2] = text.replace(_BETWEEN, ""), beginning.replace(_BETWEEN, "")
    return _BETWEEN.join([texts[at] for index in places for at in (2 * index, 2 * index + 1)]).encode()


def _masked(texts: Sequence[str]) -> list[str]:
    whole = _BETWEEN.join(texts)
    masked = _BETWEEN.join(map(hide, _pieces(whole))).split(_BETWEEN)
    return masked if len(masked) == len(texts) else [hide(text) for text in texts]  # a secret has such a character


def _json_masked(text: str, masked: str) -> str:
    """Masks by value where the masked text is not JSON."""
    try:
        msgspec.json.decode(masked)
    except (ValueError, RecursionError):
        with suppress(ValueError, RecursionError):
            return hide(msgspec.json.encode(hide_within(msgspec.json.decode(text))).decode())
    return masked


def _cut_arguments(raw: bytes) -> tuple[str, int]:
    """Arguments with long values cut, and flags."""
    if not raw:
        return "", 0
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

    if len(raw) < MOST_DECODED:
        with suppress(ValueError, RecursionError):
            encoded = msgspec.json.encode(hide_within(msgspec.json.decode(raw), short))
            if len(encoded) <= ARGUMENTS:
                text = encoded.decode()
                hidden = hide(text)
                return hidden, flags | (MASKED_ARGUMENTS if hidden != text else 0)
    text, is_masked = hide_start(raw, VALUE)
    return text, CUT_ARGUMENTS | (MASKED_ARGUMENTS if is_masked else 0)
