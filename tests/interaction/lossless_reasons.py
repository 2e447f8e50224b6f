"""Why the hub changes anything at all: every change that may be met, and the rule that asks for it."""

import re
from dataclasses import dataclass

from tests.interaction.fronts import HANDSHAKE, MODERN


@dataclass(frozen=True)
class Reason:
    """A rule, and the `pattern` of the changes that it asks for between these eras; `""` is any."""

    rule: str
    pattern: str
    client: str = ""
    server: str = ""


_HINTS = "`(ttlMs|cacheScope)`"
RELAY = (
    Reason("results, to a modern client", "`resultType` added", MODERN),
    Reason("results, to a modern client", f"{_HINTS} added", MODERN, HANDSHAKE),
    Reason("results, handshake → handshake", "`resultType` dropped", HANDSHAKE, HANDSHAKE),
    Reason("results, modern → handshake", f"({_HINTS}|`(resultType|structuredContent)`) dropped", HANDSHAKE, MODERN),
    Reason("results that ask for input", r'`requestState` `"x"` → `"up1\.\(seal\)\.x"`', MODERN, MODERN),
    Reason("results of a type that the caller did not agree to", "error `-32603`"),
    Reason("tool and prompt names", r'`name` `"(\{server\}_)?echo"` → `"(\{server\}_)?echo"`'),
    Reason("resource URIs", r'`uri` `"(test|hub)://[^`]*` → `"(test|hub)://[^`]*`'),
    Reason("reserved `_meta` keys", "made anew"),
    Reason("progress", r"`(progress|total)` `[^`]*` → `[^`]*`|not passed on"),
    Reason("a level of a log message that the specification does not know", "`level` `[^`]*` → `[^`]*`"),
    Reason("tool definitions", "`execution` dropped", MODERN),
    Reason("tool definitions", r"`(outputSchema|execution\.taskSupport)` dropped", HANDSHAKE),
    Reason("errors, to a modern client", "`code` `-32002` → `-32602`|a result of type input_required", MODERN),
    Reason("errors about the hub's own hop", "`-3202[012]` → `-32603`, the original in `data`"),
    Reason("errors, to a modern client", "`-320[2-9][0-9]` → `-32603`, the original in `data`", MODERN),
    Reason("invalid text", "lone surrogates → U\\+FFFD"),
    Reason("definitions that would break a client", "left out"),
    Reason("results that would break a client", "`content` added"),
    Reason("results that would break a client", "`structuredContent` dropped", "", HANDSHAKE),
)
"""Rules that are rows of docs/relay.md."""
BESIDES = (
    Reason("a modern result has these members, even if its server left them out", f"{_HINTS} added", MODERN, MODERN),
    Reason(
        "a message that the hub takes apart (a definition, a result that gets or loses members, progress) is put "
        "together again from values with their original spelling; a message on several lines leaves on one",
        "white space between tokens|of members of one name the last is kept|members in another order",
    ),
    Reason("a client cannot use a total that is not a number", "`total` dropped"),
    Reason("a URI of more than 8192 characters matches no template: not found", "error `-32(002|602)`"),
    Reason(
        "a server over HTTP still refuses the version after a new negotiation", "error `1001` of the hub", "", MODERN
    ),
    Reason("the hub has its own instructions, with a line from each server's", "in those of the hub"),
)
"""Rules that are not."""


def reason_for(change: str, client: str, server: str) -> Reason | None:
    """Why this change is met between a client and a server of these eras."""
    fits = (
        reason
        for reason in (*RELAY, *BESIDES)
        if reason.client in ("", client) and reason.server in ("", server) and re.fullmatch(reason.pattern, change)
    )
    return next(fits, None)
