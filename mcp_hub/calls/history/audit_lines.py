"""Lines of the audit: their members, and a call's questions."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.gates.steps import Decision
from mcp_hub.calls.history.batches import ToolKeeping, hashed_arguments, masked_texts, reduced
from mcp_hub.calls.history.recent import shown_principal
from mcp_hub.calls.history.waiting import Portion
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.reading.stored import exported_name, own_name
from mcp_hub.masking import hide_head, hide_within

ArgumentRule = Literal["hash", "full", "none"]
NAME: Final = 200
"""Characters of a name."""
_TEXT: Final = 1000
"""Characters of a text of an event."""
_OUTCOMES: Final = ("completed", "tool_error", "failed", "cancelled", "timed_out")
_MOST_ITEMS: Final = 20
quote: Final = msgspec.json.Encoder().encode


def decided(decision: Decision | None) -> bytes:
    """The members about gates' decisions."""
    if decision is None:
        return b'"decision":"allowed"'
    outcome, rule, by = decision
    members = {
        "decision": outcome,
        **{name: hide_head(text, NAME) for name, text in (("rule", rule), ("by", by)) if text},
    }
    return quote(members)[1:-1]


class LineRules:
    """The members that lines have of a call; `key` is for hashes of arguments, and may block."""

    def __init__(
        self, arguments: ArgumentRule, keeping: Callable[[str, str], ToolKeeping], key: Callable[[], bytes]
    ) -> None:
        self._arguments = arguments
        self._keeping = keeping
        self._key = key

    def prefix(self, call: Call, outcome: Outcome) -> bytes:
        """The members that are the same for all calls of a group."""
        name, tool = exported_name(call), own_name(call)
        if call.method not in ("tools/call", "prompts/get") and self._arguments != "full":
            name = tool = ""  # a URI is an argument
        members = {
            "principal": shown_principal(call.principal), "client": hide_head(call.client_name, NAME),
            "profile": call.profile or "", "server": call.upstream, "method": call.method,
            "tool": hide_head(tool, NAME), "name": "" if name == tool else hide_head(name, NAME),
            "outcome": _OUTCOMES[outcome],
        }  # fmt: skip
        return quote({name: text for name, text in members.items() if text})[1:-1]

    def arguments_of(self, portion: Portion) -> list[bytes] | None:
        """Encoded texts or hashes of each call's arguments; None: nothing of them."""
        texts = portion.texts
        if texts is None or self._arguments == "none":
            return None
        fields, long = texts.fields(), dict(texts.long)
        fields[1::2] = [b""] * len(portion)  # nothing of results
        long = {index: (arguments, b"") for index, (arguments, _) in long.items()}
        firsts = [self._keeping(call.upstream, own_name(call)) for call, _ in portion.groups.firsts]
        if any(not rule.is_kept or rule.supplies for rule in firsts):
            for index, rule in enumerate(portion.groups.spread(firsts, len(portion))):
                if not rule.is_kept or rule.supplies:
                    whole = long.pop(index, (fields[2 * index], b""))[0]
                    fields[2 * index] = reduced(whole, rule) if rule.is_kept and whole else b""
        places = range(len(portion))
        if self._arguments == "full":
            masked = masked_texts(fields, long, [0] * len(portion), places, bytearray(len(portion)))
            return [quote(text.decode()) if text else b"" for text in masked.split(b"\0")[::2]]
        hashes = hashed_arguments(self._key(), fields, long, places)
        return [b'"%b"' % text if text else b"" for text in hashes.split(b"\0")[::2]]


def plain(value: object) -> object:
    """A value of an event, masked, then cut."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return hide_head(value, _TEXT)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value[:_MOST_ITEMS]]
    return hide_head(str(hide_within(value)), _TEXT)


def timestamp(moment: float) -> bytes:
    """ISO 8601 in UTC, with milliseconds."""
    seconds = int(moment)
    return b"%b.%03dZ" % (_seconds(seconds), int((moment - seconds) * 1000))


@lru_cache(maxsize=16)
def _seconds(moment: int) -> bytes:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
