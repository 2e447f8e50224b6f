"""The lines of reliability.md §1 that a bad upstream sends instead of an answer: what is made of each."""

import json
import time

import msgspec
import pytest

from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, decode
from mcp_hub.protocol.jsonrpc.unparsed import salvage_id

BROKEN = {
    "malformed": (b'{"jsonrpc":"2.0","id":7,"result":{"content":[}}', -32700, b"7"),
    "truncated": (b'{"jsonrpc":"2.0","id":7,"result":{"content":[', -32700, b"7"),
    "nan": (b'{"jsonrpc":"2.0","id":7,"result":{"x":NaN,"y":-Infinity}}', -32700, b"7"),
    "deep": (b'{"jsonrpc":"2.0","id":7,"result":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", -32700, b"7"),
    "id at the end": (b'{"jsonrpc":"2.0","result":{"x":' + b"[" * 100_000 + b']},"id":"a\\"b"}', -32700, b'"a\\"b"'),
    "control character": (b'{"jsonrpc":"2.0","id":7,"result":{"x":"\x00"}}', -32700, b"7"),
    "number as method": (b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, b"7"),
    "number as method of an answer": (b'{"jsonrpc":"2.0","id":7,"method":5,"result":{}}', -32600, b"7"),
    "null as method": (b'{"jsonrpc":"2.0","id":7,"method":null}', -32600, b"7"),
    "number as jsonrpc": (b'{"jsonrpc":2.0,"id":7,"result":{}}', -32600, b"7"),
    "array": (b'[{"jsonrpc":"2.0","id":7,"result":{}}]', -32600, b"7"),
    "two ids": (b'{"id":1,"result":{"id":2,', -32700, None),
    "no id": (b'{"jsonrpc":"2.0","result":{"content":[}', -32700, None),
    "float id": (b'{"jsonrpc":"2.0","id":7.5,"result":{', -32700, None),
    "huge id": (b'{"jsonrpc":"2.0","id":' + b"7" * 5000 + b',"result":{', -32700, None),
    "text": (b"Traceback (most recent call last):", -32700, None),
    "a number": (b"42", -32600, None),
    "null": (b"null", -32600, None),
    "nothing": (b"", -32700, None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_line_that_is_no_message_keeps_its_id_if_that_can_be_read(name: str) -> None:
    line, code, id_ = BROKEN[name]
    message = decode(line)
    assert isinstance(message, BadMessage)
    assert (message.code, message.id) == (code, id_) and len(message.reason) < 300


def test_an_array_is_refused_with_the_version_that_has_arrays() -> None:
    message = decode(b' [{"jsonrpc":"2.0","id":7,"method":"ping"}]')
    assert isinstance(message, BadMessage)
    assert "an array of messages exists only in protocol version 2025-03-26" in message.reason


MENDED = {
    "byte order mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":7,"result":{"x":1}}',
    "noise": b'Loading {model}... 50% {"jsonrpc":"2.0","id":7,"result":{"x":1}}',
    "duplicate id": b'{"jsonrpc":"2.0","id":"nobody","id":7,"result":{"x":1}}',
    "no jsonrpc": b'{"id":7,"result":{"x":1}}',
    "null as method": b'{"jsonrpc":"2.0","id":7,"method":null,"params":null,"result":{"x":1},"error":null}',
    "carriage return": b'{"jsonrpc":"2.0","id":7,"result":{"x":1}}\r',
    "big integer beside it": b'{"jsonrpc":"2.0","id":7,"result":{"x":1},"y":' + b"7" * 5000 + b"}",
}


@pytest.mark.parametrize("name", MENDED)
def test_a_message_that_is_only_odd_is_read(name: str) -> None:
    message = decode(MENDED[name])
    assert isinstance(message, Envelope)
    assert isinstance(message.id, msgspec.Raw) and isinstance(message.result, msgspec.Raw)
    assert (bytes(message.id), json.loads(bytes(message.result))) == (b"7", {"x": 1})


def test_an_id_is_searched_at_both_ends_of_a_long_line_only() -> None:
    filling = b"x" * 100_000
    assert salvage_id(b'{"id":7,"result":"' + filling) == b"7"
    assert salvage_id(b'{"result":"' + filling + b'","id":"a"}') == b'"a"'
    assert salvage_id(b'{"result":"' + filling + b'","id":7,"x":"' + filling) is None
    assert salvage_id(b'{"id":7,"result":"' + filling + b'","id":8}') is None


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"jsonrpc":"2.0","id":%b,"result":' % id_ for id_ in (rb'"\q"', rb'"\ud800"', b"01", b"-007", b'"\xff"')),
        b'{"jsonrpc":"2.0","result":{"rows":[{"id":1},{"x":NaN,"id":2}',
        b'{"id":7,"result":{"x":NaN},"jsonrpc":"2.0","id":8}',
        b'{"jsonrpc":"2.0","id":7,"id":8,"result":{"x":NaN}}',
        b'{"jsonrpc":"2.0","result":{"rows":[{"id":1},{"id":2}],"x":"%s","id":3}}' % (b"y" * 5000),
    ],
)
def test_an_id_that_no_reader_would_take_or_that_may_be_of_the_payload_is_not_echoed(line: bytes) -> None:
    assert salvage_id(line) is None


def test_a_lone_surrogate_is_repaired_among_escapes_of_every_sort() -> None:
    line = rb'{"jsonrpc":"2.0","id":7,"result":{"x":"\\ud83d \n\\\ud83d \ud83d\ude00\udc00"}}'
    message = decode(line)
    assert isinstance(message, Envelope) and isinstance(message.result, msgspec.Raw)
    assert json.loads(bytes(message.result)) == {"x": "\\ud83d \n\\\ufffd \U0001f600\ufffd"}


@pytest.mark.parametrize("escape", [rb"\n", rb"\\", rb"\ud83d", rb"\ud83d\ude00", b"\\"])
def test_a_long_line_that_is_broken_is_given_up_at_once(escape: bytes) -> None:
    """A second try costs more than reading: it would keep everybody waiting for seconds."""
    line = b'{"jsonrpc":"2.0","id":7,"result":{"x":"' + escape * (30_000_000 // len(escape))
    began = time.process_time()
    message = decode(line)
    assert isinstance(message, BadMessage) and message.id == b"7"
    assert time.process_time() - began < 2


@pytest.mark.parametrize("line", [b"Content-Length: 85\r", b"{", b'  "jsonrpc": "2.0",', b'  "id": 1,', b'"params": {'])
def test_a_line_of_another_framing_is_refused_with_the_framing_that_is_right(line: bytes) -> None:
    message = decode(line)
    assert isinstance(message, BadMessage) and "each message is one line of JSON, not" in message.reason


KINDS = {
    b'{"id":7,"method":"m"}': ("request", 7),
    b'{"id":"7","method":"m","result":{}}': ("request", 7),
    b'{"id":"007","method":""}': ("request", "007"),
    b'{"id":"a\\u0041","method":"(none)"}': ("request", "a\\u0041"),
    b'{"id":-7,"method":"m"}': ("request", -7),
    b'{"id":7.0,"method":"m"}': ("request", None),
    b'{"id":null,"method":"m"}': ("request", None),
    b'{"id":[[]],"method":"m"}': ("request", None),
    b'{"id":9999999999999999999,"method":"m"}': ("request", 9999999999999999999),
    b'{"id":99999999999999999999,"method":"m"}': ("request", "99999999999999999999"),
    b'{"method":"m"}': ("notification", None),
    b'{"id":7,"result":{}}': ("result", 7),
    b'{"id":7.0,"result":null}': ("result", 7),
    b'{"id":7e0,"method":null,"result":{}}': ("result", 7),
    b'{"id":7.5,"result":{}}': ("result", None),
    b'{"result":{},"error":null}': ("result", None),
    b'{"id":7,"result":{},"error":{}}': ("error", 7),
    b'{"id":7,"error":null}': ("error", 7),
    b'{"id":null,"error":{}}': ("error", None),
    b'{"id":7,"params":{}}': ("none", 7),
    b'{"kind":"request","id_key":3}': ("none", None),
    b'text {"jsonrpc":"2.0","id":7,"result":"\\ud800"}': ("result", 7),
}


@pytest.mark.parametrize("line", KINDS)
def test_a_message_knows_its_kind_and_the_key_of_its_id(line: bytes) -> None:
    message = decode(line)
    assert isinstance(message, Envelope)
    assert (message.kind, message.id_key) == KINDS[line]
    assert message.is_answer == (message.kind not in ("request", "notification"))
