"""Messages after one another on one line, and one behind stray text."""

import time

import pytest

from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, decode
from mcp_hub.protocol.jsonrpc.repair import several

NOTE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"}{\\"id\\":5}"}}'
ANSWER = b'{"result":{"rows":[{"id":1},{"id":2}]},"jsonrpc":"2.0","id":7}'
BROKEN = b'{"jsonrpc":"2.0","id":8,"result":{"x":NaN}}'
BAD = BadMessage(-32700, "malformed")


@pytest.mark.parametrize("between", [b"", b" ", b"\t\r"])
@pytest.mark.parametrize("before", [b"", b"INFO {done} ", b'{"level":"info"}', b'INFO {"id":5} '])
@pytest.mark.parametrize("messages", [(NOTE, ANSWER), (ANSWER, NOTE, ANSWER), (NOTE,) * 62])
def test_one_after_another_they_are_these_messages(messages: tuple[bytes, ...], before: bytes, between: bytes) -> None:
    line = before + between.join(messages)
    assert isinstance(decode(line), BadMessage)
    parts, rest = several(line, BAD)
    found = [one for one in map(decode, parts) if isinstance(one, Envelope) and one.jsonrpc]
    assert found == [decode(message) for message in messages] and rest is None


def test_what_follows_a_message_that_cannot_be_read_stays_with_it() -> None:
    parts, rest = several(NOTE + BROKEN + ANSWER, BAD)
    assert parts == [NOTE] and rest is not None
    assert (rest[0].id, rest[1]) == (b"8", BROKEN + ANSWER)


@pytest.mark.parametrize(
    "line",
    [
        BROKEN,
        BROKEN + ANSWER,
        b"INFO done",
        ANSWER + b" // done",
        b'{"jsonrpc":"2.0","id":8,"result":{"rows":[{"id":1}%s]}}' % ANSWER,
        b"[%s]" % (NOTE + ANSWER),
    ],
)
def test_a_line_that_does_not_begin_with_a_message_stays_whole(line: bytes) -> None:
    assert several(line, BAD) == ([], (BAD, line))


def test_of_very_many_messages_the_rest_is_one_that_cannot_be_read() -> None:
    parts, rest = several(NOTE * 10_000, BAD)
    assert len(parts) == 63 and rest is not None and len(rest[1]) == (10_000 - 63) * len(NOTE)


def test_of_a_long_line_the_ends_are_looked_at() -> None:
    long = b'{"jsonrpc":"2.0","id":7,"result":"%s"}' % (b"}{" * 600_000)
    assert several(NOTE + long, BAD) == ([NOTE, long], None)
    assert several(long + NOTE, BAD) == ([long, NOTE], None)
    assert several(NOTE + long + NOTE, BAD) == ([NOTE, long, NOTE], None)


@pytest.mark.parametrize("noise", [b"\x1b[32mINFO\x1b[0m {ok} ", b"caf\xe9 [1] ", b"42", b'got {"id": 77} '])
@pytest.mark.parametrize(
    "message",
    [
        ANSWER,
        b'{"id":7,"jsonrpc":"2.0","result":{}}',
        b'{ "jsonrpc" : "2.0", "id" : 7, "error" : {} } ',
        b'{"method":"notifications/x","jsonrpc":"2.0"}',
    ],
)
def test_stray_text_before_a_message_is_cut_off_in_any_order_of_members(noise: bytes, message: bytes) -> None:
    assert decode(noise + message) == decode(message) and isinstance(decode(message), Envelope)


@pytest.mark.parametrize(
    "line",
    [
        b'INFO {"id":7,"result":{}}',
        b'INFO {"jsonrpc":"1.0","id":7,"result":{}}',
        b'INFO {"jsonrpc":"2.0","result":{}}',
        b'{"result":{"x":NaN,"y":{"jsonrpc":"2.0","id":8,"result":{}}',
        b'[{"jsonrpc":"2.0","id":7,"method":"a"},{"jsonrpc":"2.0","id":8,"method":"b"}',
        b"INFO " + b'{"id":1} ' * 16 + ANSWER,
        b"INFO " + NOTE + ANSWER,
    ],
    ids=["no version", "another version", "no id", "inside another", "in an array", "too far", "two"],
)
def test_stray_text_before_an_unclear_message_is_not_cut_off(line: bytes) -> None:
    assert isinstance(decode(line), BadMessage)


def test_no_line_takes_long() -> None:
    for piece in (b"}", b"{", b"}{", b'{"id":', b'}{"id":1', b"} ", b'{"jsonrpc":"2.0","id":1}', b'{"id":1,"x":"'):
        for line in (piece * ((1 << 20) // len(piece)), b"INFO " + piece * ((1 << 20) // len(piece) - 5)):
            began = time.process_time()
            decode(line)
            several(line, BAD)
            assert time.process_time() - began < 2, "a guard against quadratic time, which would be hours"
