"""The things that cross the hub, one row each: how it is sent, and what became of it."""

import json
from collections.abc import Awaitable, Callable
from itertools import starmap

from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.interaction.json_text import changes, items, member
from tests.interaction.lossless_places import CLASHING, FIRST, INSTRUCTIONS, Place, text_of, vendor_meta

__all__ = ["DEFINITIONS", "SECTIONS", "Row"]

Row = Callable[[Place], Awaitable[list[str] | None]]
"""Measures one thing at one place: what changed, nothing if it is the same, None where there is no such thing."""

BIG = "123456789012345678901234567890"
NUMBERS = '{"a":1.10,"b":1E+2,"c":-0.0,"d":1e400,"e":0.1e1,"f":12345678901234567890.5}'
INTEGERS = f'{{"a":18446744073709551616,"b":-{BIG},"c":9007199254740993,"d":[{"9" * 400}]}}'
ESCAPES = r'{"a":"\u0000\u001f\u007f","b":"\/\u0041\u00e9","c":"é✓😀\ud83d\ude00","d":"\u2028\b\f\n\r\t\"\\","\u006bey":1}'
LONE = r'{"a":"x\ud83dy","b":"\ude00\ud83d"}'
MENDED = r'{"a":"x\ufffdy","b":"\ufffd\ufffd"}'
DOUBLED = '{"a":1,"b":{"c":1,"c":2},"a":3}'
DEEP = '{"a":' * 50 + "[" * 50 + "]" * 50 + "}" * 50
SPACED = '{ "a" : [ 1 , 2 ] ,\t"b" : { } }'
BROKEN = '{\n  "a": [\n    1\n  ]\r\n}'
META = '{"example.org/x":{"deep":[1,null,1.50]},"traceparent":"00-ab-cd-01","plain":[]}'

# -- results


def framed(place: Place, method: str, members: str) -> str:
    """The result with these members as the server's era has it."""
    if place.server_era == HANDSHAKE or method not in MAY_BE_MARKED:
        return f"{{{members}}}"
    hints = '"ttlMs":5000,"cacheScope":"private",' if method == "resources/read" else ""
    return f'{{"resultType":"complete",{hints}{members}}}'


MAY_BE_MARKED = {"tools/call", "prompts/get", "resources/read", "completion/complete"}


def result(members: str, method: str = "tools/call") -> Row:
    async def row(place: Place) -> list[str]:
        sent = framed(place, method, members)
        return _compared(sent, await place.asked(method, sent), "result")

    return row


def unframed(text: str, era: str) -> Row:
    """A whole result that only servers of this era give."""

    async def row(place: Place) -> list[str] | None:
        return _compared(text, await place.asked("tools/call", text), "result") if place.server_era == era else None

    return row


def _compared(sent: str, answer: str, key: str) -> list[str]:
    got = member(answer, key)
    return changes(sent, got) if got else [f"instead: `{answer[:80]}`"]


async def large(place: Place) -> list[str]:
    size = 5_000_000
    call = f'"name":"{place.server}_big","arguments":{{"bytes":{size}}}'
    answer = (await place.request("tools/call", call))[-1]
    content = f'[{{"type":"text","text":"{"x" * size}"}}]'
    return changes(content, member(answer, "result", "content"))


TEXT = '"content":[{"type":"text","text":"x"}]'
RESULTS = {
    "text": result(TEXT),
    "no content": result('"content":[]'),
    "no members at all": result(""),
    "`isError`": result(TEXT + ',"isError":true'),
    "unknown members": result(TEXT + ',"x-new":{"a":[null]},"另":0'),
    "unknown content types": result('"content":[{"type":"hologram","data":{"a":1}},{"no":"type"},7]'),
    "images, audio": result('"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"audio"}]'),
    "annotations of content": result(
        '"content":[{"type":"text","text":"x","annotations":{"audience":["user"],"priority":0.50,"x":1}}]'
    ),
    "`_meta`": result(f'{TEXT},"_meta":{META}'),
    "`_meta` of content": result(f'"content":[{{"type":"text","text":"x","_meta":{META}}}]'),
    "`structuredContent`, an object": result(TEXT + ',"structuredContent":{"a":[1,{"b":null}]}'),
    "`structuredContent`, an array": result(TEXT + ',"structuredContent":[1,2]'),
    "`structuredContent`, a string": result(TEXT + ',"structuredContent":"x"'),
    "`structuredContent`, a number": result(TEXT + ',"structuredContent":1.50'),
    "`structuredContent`, null": result(TEXT + ',"structuredContent":null'),
    "integers of any size": result(f'{TEXT},"structuredContent":{INTEGERS}'),
    "spelling of numbers": result(f'{TEXT},"structuredContent":{NUMBERS}'),
    "escapes, NUL, emoji": result(f'{TEXT},"structuredContent":{ESCAPES}'),
    "members of one name": result(f'{TEXT},"structuredContent":{DOUBLED},"x":1,"x":2'),
    "nested 100 deep": result(f'{TEXT},"structuredContent":{DEEP}'),
    "white space": result(f'"content" : [ ] ,"structuredContent":{SPACED}'),
    "5 MB of text": large,
    "`resultType` behind other members": unframed(f'{{"content":[],"a":{DOUBLED},"resultType":"complete"}}', MODERN),
    "`resultType` missing": unframed('{"content":[]}', MODERN),
    "`resultType` of an extension": unframed('{"resultType":"example.org/later","content":[]}', MODERN),
    "`resultType` before its time": unframed('{"resultType":"complete","content":[]}', HANDSHAKE),
}
