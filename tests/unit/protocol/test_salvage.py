"""What is told of a line that cannot be decoded: the id in the message's own place, and whether it was an answer."""

import time

import pytest

from mcp_hub.protocol.jsonrpc.unparsed import is_answer, salvage_id

ROWS = b'{"rows":[{"id":1},{"id":2,"x":"}"}],"x":NaN}'
LONG = b'{"text":"%s","x":NaN}' % (b"y" * 100_000)


@pytest.mark.parametrize("result", [ROWS, LONG, ROWS[:-1] + b',"more":' + LONG + b"}"])
@pytest.mark.parametrize(
    "layout",
    [
        b'{"jsonrpc":"2.0","id":7,"result":%s}',
        b' { "id" : 7 , "jsonrpc" : "2.0" , "result" : %s }',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":7,"result":%s}',
        b'{"result":%s,"jsonrpc":"2.0","id":7}',
        b'{"result":%s,"id":7,"jsonrpc":"2.0"} \r',
        b'{"jsonrpc":"2.0","result":%s,"id":7}',
    ],
)
def test_an_id_in_its_place_counts_for_more_than_those_of_the_payload(layout: bytes, result: bytes) -> None:
    line = layout % result
    assert salvage_id(line) == b"7" and is_answer(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{]}',
        b'{"method":"roots/list","params":{"result":"%s",]},"jsonrpc":"2.0","id":7}' % (b"y" * 5000),
        b'{"params":{"result":"%s",]},"method":"roots/list","jsonrpc":"2.0","id":7}' % (b"y" * 5000),
        b'{"level":"info","id":7,"result":',
        b'{"level":"info","text":"%s","jsonrpc":"2.0","id":7' % (b"y" * 5000),
        b'{"result":"%s","jsonrpc":"2.0"}%s' % (b"y" * 5000, b"z" * 5000),
    ],
)
def test_a_broken_request_and_a_log_line_are_no_answer(line: bytes) -> None:
    assert not is_answer(line)


@pytest.mark.parametrize("method", [b"5", b"null", b"{}", b"[]"])
def test_a_method_that_is_no_name_makes_no_request_of_an_answer(method: bytes) -> None:
    line = b'{"jsonrpc":"2.0","id":7,"method":%s,' % method
    assert is_answer(line + b'"result":{}}') and is_answer(line + b'"error":{}}')
    assert not is_answer(line + b'"params":{}}') and not is_answer(line[:-1])


def test_no_line_takes_long() -> None:
    members = (b'"id":1', b',"id":"', b',"jsonrpc":"2.0","id":1}', b'"method"', b', "id" : 1 ')
    for piece in (b'"', b'\\"', b"{", b" ", b"},{", *members):
        line = b'{"result":' + piece * ((1 << 24) // len(piece)) + b',"id":7}'
        began = time.process_time()
        salvage_id(line)
        is_answer(line)
        assert time.process_time() - began < 2, "a guard against quadratic time, which would be hours"
