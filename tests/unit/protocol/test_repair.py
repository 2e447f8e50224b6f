"""What stands for an answer that cannot be decoded: an error; a list is kept without what is no number."""

import time

import msgspec
import pytest

from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.jsonrpc.repair import NOT_JSON, Placeholder, placeholder


def stands(line: bytes, method: str = "tools/list") -> Envelope:
    bad = envelope.decode(line)
    assert isinstance(bad, BadMessage)
    return placeholder(bad, line, method)


def answer(result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"result":%s}' % result


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"])
@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity"])
def test_of_a_list_only_the_value_is_replaced(method: str, value: bytes) -> None:
    kept = rb'{"tools":[{"a":"NaN, \"NaN -Infinity\\","b":%s},{"NaN":1.50,"d":[1e400,%s]}],"x": "Infinity"}'
    found = stands(answer(kept % (value, value)), method)
    assert found.result == msgspec.Raw(kept % (NOT_JSON, NOT_JSON)) and found.kind == "result"


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/call", b'{"content":[],"tools":[NaN]}'),
        ("tools/list", b'{"tools":[}'),
        ("tools/list", b'{"tools":[NaN]},"error":{"code":1,"message":"m"}'),
        ("tools/list", b'{"tools":[NaN}'),
        ("tools/list", b'{"tools":[NaNs]}'),
        ("tools/list", b'{"tools":["NaN]}'),
        ("tools/list", b'{"tools":[NaN,"%s"]}' % (b"x" * (8 << 20))),
        ("tools/list", b'{"tools":[{"x":[}},{}]}'),
        ("tools/list", b'{"tools":[{"x":NaN]},{}]}'),
        ("tools/list", b'{"tools":[{},]}'),
        ("tools/list", b'{"tools":[{} {"x":NaN}]}'),
        ("tools/list", b'{"tools":[{"x":NaN}],}'),
        ("tools/list", b'{"prompts":[{"x":1,}]}'),
    ],
)
def test_anything_else_is_the_hubs_error(method: str, result: bytes) -> None:
    found = stands(answer(result), method)
    assert isinstance(found, Placeholder) and found.kind == "error" and b"malformed" in bytes(found.error)


UNFIT = {
    "deep": b'{"name":"b","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "control character": b'{"name":"b","x":"a\tb"}',
    "escape": rb'{"name":"b","x":"\x41"}',
    "trailing comma": b'{"name":"b","x":[{"a":1,}]}',
    "no quotes": b"{'name':'b','x':[undefined]}",
    "brackets in strings": rb'{"name":"b","x":"]}\"]},{\\","y":True}',
}
LAYOUTS = (
    b'{"jsonrpc":"2.0","id":7,"result":{"tools":%s}}',
    b'{"result":{"_meta":{"a":[1]},"tools":%s,"nextCursor":"n"},"jsonrpc":"2.0","id":7}',
)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UNFIT)
def test_an_element_that_cannot_be_read_is_replaced_and_the_others_stay(name: str, layout: bytes) -> None:
    good = rb'{ "name": "a", "x": "]}\"\\", "y": [{"z": {}}, []] }'
    found = stands(layout % (b"[ %s , %s\t,%s]" % (good, UNFIT[name], good)))
    assert isinstance(found.result, msgspec.Raw)
    assert b'"tools":[ %s , %s\t,%s]' % (good, NOT_JSON, good) in bytes(found.result)


@pytest.mark.parametrize("size", [100, 1_200_000])
def test_half_a_character_in_a_list_of_any_size_is_repaired(size: int) -> None:
    list_ = rb'[{"name":"a"},{"x":"\ud83d"},{"x":"%s"},{"x":NaN}]' % (b"x" * size)
    found = stands(answer(b'{"tools":%s}' % list_))
    expected = list_.replace(b"d83d", b"fffd").replace(b"NaN", NOT_JSON)
    assert found.result == msgspec.Raw(b'{"tools":%s}' % expected)


def test_an_element_that_is_long_itself_is_replaced_as_a_whole() -> None:
    found = stands(answer(rb'{"tools":[{"a":1},{"x":"\ud83d%s"}]}' % (b"x" * 1_200_000)))
    assert found.result == msgspec.Raw(b'{"tools":[{"a":1},%s]}' % NOT_JSON)


def assert_quick(line: bytes) -> None:
    began = time.process_time()
    placeholder(BadMessage(-32700, "malformed"), line, "tools/list")
    assert time.process_time() - began < 5, "a guard against quadratic time, which would be hours"


@pytest.mark.slow
@pytest.mark.parametrize(
    "tools",
    [
        b'{"a":NaN,"b":[' + b"[]," * 2_700_000 + b"0]}",
        b"[" * 4_000_000 + b"]" * 4_000_000,
        b'{"a":NaN},' * 800_000 + b"0",
        b"0," * 4_000_000 + b"NaN",
        b'{"a":NaN,"b":"' + b'\\"' * 4_000_000 + b'"}',
        b'{"a":NaN,"b":"' + b'\\"' * 4_000_000,
        b'{"a":{"b":' * 800_000 + b"NaN",
    ],
    ids=["pairs", "deep", "many", "numbers", "quotes", "no end", "open"],
)
def test_no_list_takes_long(tools: bytes) -> None:
    line = answer(b'{"tools":[%s]}' % tools)
    assert len(line) <= 8 << 20
    assert_quick(line)


@pytest.mark.slow
def test_no_line_takes_long() -> None:
    for piece in (b'"', b'\\"', b'"\\', b"-", b"NaN", b'"NaN'):
        assert_quick(answer(b"NaN " + piece * ((1 << 20) // len(piece) - 100)))
