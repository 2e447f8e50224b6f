"""Why the hub changes anything at all: every change that may be met, and the rule that asks for it."""

import re
from dataclasses import dataclass

from tests.interaction.fronts import HANDSHAKE, MODERN

__all__ = ["REASONS", "Reason", "reason_for"]


@dataclass(frozen=True, order=True)
class Reason:
    """A rule: `row` of docs/relay.md, or `besides`, which that page does not have. The first that fits counts.

    `pattern` is of the change; `client` and `server` are eras, `""` any.
    """

    number: int
    row: str
    pattern: str
    client: str = ""
    server: str = ""
    besides: str = ""

    @property
    def text(self) -> str:
        return self.besides or f"[relay.md](relay.md): {self.row}"


_FRAME = r"`(resultType|ttlMs|cacheScope)`"
_RULES: tuple[tuple[str, ...], ...] = (
    ("results, handshake → modern", f"{_FRAME} added", MODERN, HANDSHAKE),
    ("results, handshake → handshake", "`resultType` dropped", HANDSHAKE, HANDSHAKE),
    ("results, modern → handshake", f"({_FRAME}|`structuredContent`) dropped", HANDSHAKE, MODERN),
    ("results of a type that the caller did not agree to", "error `-32603`"),
    ("tool and prompt names", r'`name` `"(\{server\}_)?echo"` → `"(\{server\}_)?echo"`'),
    ("resource URIs", r'`uri` `"(test|hub)://[^`]*` → `"(test|hub)://[^`]*`'),
    ("reserved `_meta` keys", "made anew"),
    ("progress", r"`(progress|total)` `[^`]*` → `[^`]*`|not passed on"),
    ("tool definitions", "`execution` dropped", MODERN),
    ("tool definitions", "`outputSchema` dropped", HANDSHAKE),
    ("errors, to a modern client", "`code` `-32002` → `-32602`", MODERN),
    ("errors about the hub's own hop", "`-32603`, the original in `data`"),
    ("errors, to a modern client", "`-32603`, the original in `data`", MODERN),
    ("text that is no text", "lone surrogates → U\\+FFFD"),
    ("definitions that would break a client", "left out"),
)
_BESIDES: tuple[tuple[str, ...], ...] = (
    ("a modern result has these members, whether the server remembered them or not", f"{_FRAME} added", MODERN, MODERN),
    ("the hub runs tasks itself and offers a handshake client none", "`execution.taskSupport` dropped", HANDSHAKE),
    (
        "an object that is taken apart (a definition, a result that gets or loses members, progress) is put together "
        "anew; its values stay as they are spelled",
        "white space between tokens|of members of one name the last is kept|members in another order",
    ),
    ("a message is one line where it leaves over stdio", "white space between tokens"),
    ("a total that is no number would break clients", "`total` dropped"),
    ("a modern client is asked by a result", "a result of type input_required", MODERN),
    ("a URI of more than 8192 characters is not looked for in templates: there is no such resource",
     "error `-32(002|602)`"),
    ("a modern server over HTTP that refuses the version is negotiated with anew, once", "error `1001` of the hub",
     "", MODERN),
    ("the hub has instructions of its own, with a sentence for each server", "first sentence, in those of the hub"),
)  # fmt: skip
REASONS = tuple(
    Reason(number, "" if rule in _BESIDES else rule[0], *rule[1:], besides=rule[0] if rule in _BESIDES else "")
    for number, rule in enumerate((*_RULES, *_BESIDES))
)


def reason_for(change: str, client: str, server: str) -> Reason | None:
    """Why this change is met between a client and a server of these eras."""
    fits = (
        reason
        for reason in REASONS
        if reason.client in ("", client) and reason.server in ("", server) and re.fullmatch(reason.pattern, change)
    )
    return next(fits, None)
