"""What stands for an answer that cannot be decoded: an error; a list is kept without what is no number."""

import time

import msgspec
import pytest

from mcp_hub.protocol import envelope
from mcp_hub.protocol.envelope import BadMessage, Envelope
from mcp_hub.protocol.unreadable import NOT_JSON, stand_in


def stands(line: bytes, method: str = "tools/list") -> Envelope:
    bad = envelope.decode(line)
    assert isinstance(bad, BadMessage)
    return stand_in(bad, line, method)


def answer(result: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"result":%s}' % result


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "resources/templates/list", "prompts/list"])
@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity"])
def test_of_a_list_only_the_value_is_replaced(method: str, value: bytes) -> None:
    kept = rb'{"tools":[{"a":"NaN, \"NaN -Infinity\\","b":%s},{"NaN":1.50,"d":[1e400,%s]}],"x": "Infinity"}'
    found = stands(answer(kept % (value, value)), method)
    assert found.result == msgspec.Raw(kept % (NOT_JSON, NOT_JSON)) and found.error is msgspec.UNSET


@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("tools/call", b'{"content":[],"tools":[NaN]}'),
        ("tools/list", b'{"tools":[}'),
        ("tools/list", b'{"tools":[NaN}'),
        ("tools/list", b'{"tools":[NaNs]}'),
        ("tools/list", b'{"tools":["NaN]}'),
        ("tools/list", b'{"tools":[NaN,"%s"]}' % (b"x" * (1 << 20))),
    ],
)
def test_anything_else_is_the_hubs_error(method: str, result: bytes) -> None:
    found = stands(answer(result), method)
    assert found.jsonrpc == "hub" and found.result is msgspec.UNSET and b"malformed" in bytes(found.error)  # type: ignore[arg-type]  # it is set


def test_no_line_takes_long() -> None:
    for piece in (b'"', b'\\"', b'"\\', b"-", b"NaN", b'"NaN'):
        line = answer(b"NaN " + piece * ((1 << 20) // len(piece) - 100))
        began = time.process_time()
        stand_in(BadMessage(-32700, "malformed"), line, "tools/list")
        assert time.process_time() - began < 5, "a guard against quadratic time, which would be hours"
