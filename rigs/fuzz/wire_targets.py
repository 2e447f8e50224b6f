"""Fuzz targets of what comes over the wire: lines, server-sent events, envelopes, headers."""

import json
import re
from random import Random
from typing import Any

import msgspec
from mcp.shared.inbound import decode_header_value

from mcp_hub.errors import RpcError
from mcp_hub.protocol import sse
from mcp_hub.protocol.headers import Mirrors, header_value, param_headers, request_headers
from mcp_hub.protocol.jsonrpc import repair
from mcp_hub.protocol.jsonrpc.envelope import (
    ABSENT,
    BadMessage,
    Envelope,
    Unset,
    decode,
    error_frame,
    id_key,
    one_line,
    raw_object,
    result_frame,
)
from mcp_hub.protocol.jsonrpc.framing import Framer, TooLong
from mcp_hub.protocol.jsonrpc.repair import Placeholder, placeholder, several
from mcp_hub.protocol.jsonrpc.unparsed import is_answer, is_deeper
from mcp_hub.protocol.sse import EventParser, SseEvent
from rigs.fuzz.mutate import json_bytes, mutated_json, pieces
from rigs.fuzz.target import Target, from_corpus, seeded

LINES = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a"}}}',
    b'{"jsonrpc":"2.0","id":"7","result":{"content":[{"type":"text","text":"\\ud83d\\ude00"}]}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5,"total":1}}',
    b'noise {"jsonrpc":"2.0","id":3,"result":{"a":"\\ud800"}}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]',
    b'{"id":9223372036854775808,"id":2,"result":[[[[{"a":[1e400,-0,NaN]}]]]],"params":"\xff\xc3("}',
    b'{"result":{},"id":"a\\"b\\\\","jsonrpc":"2.0"}\r',
    b'{"jsonrpc":"2.0","method":"x"}{"result":{"rows":[{"id":1}]},"jsonrpc":"2.0","id":3} {"id":4,"jsonrpc":"2.0"}',
    b'INFO {done} { "id" : 3, "jsonrpc" : "2.0", "result" : {} }',
    b'{"result":{"tools":[{"name":"a"},{"name":"b","x":[NaN,]}]},"id":5,"jsonrpc":"2.0"}',
)
WORDS = (
    *(b'{"jsonrpc"', b'"id":', b'"method":', b'"params":{', b'"result":', b'"error":{', b"\\ud800", b"\\udc00"),
    b"\\\\",
    *(b"[" * 200, b'{"a":' * 200, b"]" * 200, b'"', b"{", b"}", b"[", b"]", b",", b":", b"null", b"\\u0000", b"\n"),
)


# -- lines


def make_lines(rng: Random) -> bytes:
    if rng.random() < 0.002:  # long enough to tell linear from quadratic by the guard against hangs
        return rng.choice((b"x", b"x" * 40 + b"\n", b"\n", b" ")) * (1 << rng.randint(16, 20))
    return _mutated_lines(rng)


_mutated_lines = from_corpus([b"\n".join(LINES), b"\r\n\r\n \n\t\n", *(line + b"\n" for line in LINES)], WORDS)


def check_framer(data: bytes) -> None:
    rng = seeded(data)
    limit = rng.choice((1, 12, 100, 4096, 5000, 1 << 25))
    framer = Framer(limit)
    frames: list[bytes | TooLong] = []
    for piece in pieces(data, rng):
        frames += framer.feed(piece)
        assert framer._size <= limit, "more is kept than the limit"
    frames += framer.finish()
    expected = [line for line in data.split(b"\n") if line.strip(b" \t\n\r\x0b\f") or len(line) > limit]
    assert len(frames) == len(expected)
    for frame, line in zip(frames, expected, strict=True):
        if isinstance(frame, TooLong):
            assert len(line) >= frame.size > limit and 0 < len(frame.head) <= 4096 and line.startswith(frame.head)
        else:
            assert frame == line and len(line) <= limit
    assert framer.feed(b"after\n") == ([b"after"] if limit >= 5 else [TooLong(b"after", 5)])


# -- server-sent events

EVENTS = (
    b"event: message\ndata: {}\n\n",
    b'id: st_1:2\nretry: 3000\ndata:\n\nid: st_1:3\ndata: {"a":1}\ndata: {"b":2}\n\n',
    b"\xef\xbb\xbf: comment\r\n\r\ndata: a\r\rdata\r\n\r\n",
    b"id\ndata: x\n\nid: a\0b\ndata:  y\n\nevent: endpoint\ndata: /m?s=1\n\n",
    b": keep-alive\n\n: keep-alive\n\nretry: 99999999999\nfoo: bar\n:\ndata: \xff\xc3\n\n",
)
EVENT_WORDS = (
    *(b"data: ", b"data:", b"data\n", b"id: ", b"id\n", b"event: ", b"retry: ", b":", b"\n\n", b"\r\r", b"\r\n\r\n"),
    *(b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8", b"\x0b", b"\x0c", b"\x1c", b"x" * 1100, b"\0", b"1234567890"),
)


def read_slowly(
    data: bytes, after: bytes | None, limit: int = 1 << 25
) -> tuple[list[SseEvent | None], bytes | None, int | None]:
    """The events, the last id and the pause, read as the standard says it, without haste; None for what is too long."""
    events, kept, type_, id_, last, retry = list[SseEvent | None](), list[bytes](), b"", after, after, None
    size, skips = 0, False
    lines = re.split(rb"\r\n|\n|\r", data)
    for number, whole in enumerate(lines, 1):
        if size + (1 if whole.startswith(b":") else len(whole)) > limit and not skips:
            events.append(None)
            skips = True
        if number == len(lines):
            break
        line = whole[:1032] if skips else whole
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not line:
            if kept and not skips:
                events.append(SseEvent(type_ or b"message", b"\n".join(kept)))
            kept, type_, last, size, skips = [], b"", id_, 0, False
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            kept.append(value)
            size += len(line)
        elif field == b"event":
            type_ = value
        elif field == b"id" and b"\0" not in value:
            id_ = value if 0 < len(value) <= 1024 else None
        elif field == b"retry" and re.fullmatch(rb"[0-9]{1,9}", value):
            retry = int(value)
    return events, last, retry


def check_sse(data: bytes) -> None:
    rng = seeded(data)
    after = rng.choice((None, b"before"))
    parser = EventParser(1 << 25, after)
    found = [event for piece in pieces(data, rng) for event in parser.events(piece)]
    events, last, retry = read_slowly(data, after)
    assert found == events, "read differently in pieces"
    assert (parser.last_id, parser.retry) == (last, retry)
    _check_limit(data, after, rng)
    _check_written(data, rng)


def _check_limit(data: bytes, after: bytes | None, rng: Random) -> None:
    """With a limit the same comes but for what is too long, and nothing is kept beyond it."""
    limit = rng.choice((1, 8, 60, 1000))
    parser = EventParser(limit, after)
    found: list[SseEvent | TooLong] = []
    for piece in pieces(data, rng):
        found += parser.events(piece)
        assert parser.held <= max(limit, 1032), "more is kept than the limit"
    events, last, retry = read_slowly(data, after, limit)
    assert [event if isinstance(event, SseEvent) else None for event in found] == events
    assert (parser.last_id, parser.retry) == (last, retry)
    for event in found:
        if isinstance(event, TooLong):
            assert event.size > limit and len(event.head) <= 4096
    assert type(parser.events(b"\n\ndata:\n\n")[-1]) is (SseEvent if limit >= 8 else TooLong)


def _check_written(data: bytes, rng: Random) -> None:
    """What the fronts write is read back as what it was."""
    frame = data.replace(b"\n", b"")
    written = sse.message(frame, "st_1:1") + sse.COMMENT + sse.priming("st_1:2", 3000) + sse.message(b"{}")
    parser = EventParser(1 << 25)
    found = [event for piece in pieces(written, rng) for event in parser.events(piece)]
    assert found == [SseEvent(b"message", data) for data in (frame.replace(b"\r", b" "), b"", b"{}")]
    assert (parser.last_id, parser.retry) == (b"st_1:2", 3000)


# -- envelopes

_mutated_message = from_corpus(LINES, WORDS)
KEYS = ("jsonrpc", "id", "method", "params", "result", "error", "_meta", "a", "")
MESSAGES = [json.loads(line) for line in LINES[:4]]


def make_message(rng: Random) -> bytes:
    if rng.random() < 0.4:
        return json_bytes(mutated_json(rng.choice(MESSAGES), KEYS, rng))
    if rng.random() < 0.001:
        return rng.choice((b"[", b'{"a":', b'{"id":', b"\\ud800", b'"id":1 ', b"{")) * rng.choice((20_000, 200_000))
    return _mutated_message(rng)


def check_envelope(data: bytes) -> None:
    message = decode(data)
    known = _known(data)
    if isinstance(message, BadMessage):
        assert message.code in (-32700, -32600) and message.reason
        assert known is None, f"a good message was refused: {message.reason}"
        if message.id is not None:
            assert isinstance(json.loads(message.id), int | str)
            assert b"\n" not in error_frame(message.id, b"{}")[:-1]
        is_answer(data)
        parts, rest = several(data, message)
        assert b"".join((*parts, rest[1] if rest is not None else b"")) == data
        assert all(isinstance(decode(part), Envelope) for part in parts) and (parts or rest == (message, data))
        for method in ("tools/list", "tools/call"):
            stood = placeholder(message, data, method)
            assert (stood.kind == "error") == isinstance(stood, Placeholder)
    else:
        _check_members(message, known)
    _check_batch(data)


def _check_members(message: Envelope, known: dict[str, Any] | None) -> None:
    for member in ("params", "result", "error"):
        raw = getattr(message, member)
        raw_object(raw)
        if known is not None and raw not in (ABSENT, Unset):
            assert json.loads(one_line(bytes(raw))) == known[member]
    id_ = message.usable_id
    if id_ is None:
        return
    assert message.id_key == id_key(id_)
    again = decode(result_frame(id_, b"{}")[:-1])
    assert isinstance(again, Envelope) and (again.kind, again.usable_id, again.id_key) == ("result", id_, id_key(id_))


def _check_batch(data: bytes) -> None:
    repair.is_array(data)
    try:
        parts = repair.messages(data, 4)
        assert 1 <= len(parts) <= 4
    except RpcError as error:
        assert error.code in (-32700, -32600)


def _known(data: bytes) -> dict[str, Any] | None:
    """The message, where the standard library and the specification leave no doubt that it is one."""
    if re.search(rb"\\u[dD][89a-fA-F]|NaN|Infinity", data) or data.count(b"[") + data.count(b"{") > 200:
        return None
    try:
        value = json.loads(data.decode())
        msgspec.json.decode(data)  # numbers beyond all bounds
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or any(not isinstance(value.get(key, ""), str) for key in ("method", "jsonrpc")):
        return None
    named_twice = any(data.count(b'"%s"' % key.encode()) > 1 for key in ("method", "jsonrpc"))
    return None if named_twice else value


def check_depth(data: bytes) -> None:
    most = seeded(data).choice((0, 1, 2, 3, 10, 64, 128))
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    assert is_deeper(data, most) == (_depth(value, most + 1) > most)


def _depth(value: Any, most: int) -> int:
    """Levels of arrays and objects, counted up to `most`. A key that comes twice hides nothing: see `make_depth`."""
    level, here = 0, [value]
    while level < most:
        here = [inner for outer in here for inner in _inside(outer)] if level else [value]
        here = [one for one in here if isinstance(one, dict | list)]
        if not here:
            return level
        level += 1
    return level


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def make_depth(rng: Random) -> bytes:
    """Valid JSON without a key twice, since only values that are kept can be compared."""
    return json_bytes(mutated_json(rng.choice(MESSAGES), (*KEYS, '[{"', "\\", "]}"), rng))


# -- headers

SCHEMAS: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    {"properties": {"a": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}, "b": {"items": {}}}},
    {"properties": {"x-mcp-header": {"type": "boolean", "x-mcp-header": "Flag"}}, "default": {"x-mcp-header": 1}},
)
HEADER_KEYS = ("properties", "x-mcp-header", "type", "items", "$defs", "default", "a", "region", "é")


def make_headers(rng: Random) -> bytes:
    texts = ("Region", "=?base64?w7Y=?=", " x ", "a\r\nb: c", "é", "\x7f", "", "=?base64?", "?=")
    value = {
        "schema": mutated_json(rng.choice(SCHEMAS), HEADER_KEYS, rng),
        "arguments": mutated_json({"region": "eu", "a": {"n": 1}, "x-mcp-header": True}, HEADER_KEYS, rng),
        "name": mutated_json(rng.choice(texts), HEADER_KEYS, rng),
    }
    return json_bytes(value)


def check_headers(data: bytes) -> None:
    value = json.loads(data)
    definition = json_bytes({"name": value["name"], "inputSchema": value["schema"]})
    try:
        wanted = param_headers(value["schema"])
    except ValueError as problem:
        assert str(problem)
        wanted = None
    mirrors = Mirrors()
    usable, refused = mirrors.learn([definition])
    assert len(usable) + len(refused) == 1
    if isinstance(value["name"], str) and not re.search(r"[\ud800-\udfff]", value["name"]):
        assert decode_header_value(header_value(value["name"])) == value["name"]
        if b"\\ud" not in data:  # a definition with half a character is left to those who mend or refuse it
            assert (wanted is None) == bool(refused)
    for given in (str(value["name"]), f"=?base64?{value['name']}?="):  # as a client may send it
        try:
            assert isinstance(decode_header_value(given), str | None)
        except ValueError:
            assert not given.isascii()  # which the front takes for a header that does not match
    params = json_bytes({"name": value["name"], "arguments": value["arguments"]})
    sent = request_headers("2026-07-28", "tools/call", params) | (mirrors.headers(raw_object(params) or {}) or {})
    for name, text in sent.items():
        assert re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9a-z]+", name)
        assert re.fullmatch(r"[\x20-\x7e]*", text) and text == text.strip(), "what HTTP cannot carry"


WIRE_TARGETS = (
    Target("framer", make_lines, check_framer),
    Target("sse", from_corpus(EVENTS, EVENT_WORDS), check_sse),
    Target("envelope", make_message, check_envelope),
    Target("depth", make_depth, check_depth),
    Target("headers", make_headers, check_headers),
)
