"""Answers that cannot be read, while others are awaited too: each ends its own request at once, or is recovered."""

import json
from base64 import b64encode
from functools import partial

import anyio
import pytest

from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.jsonrpc.framing import depth, foreign
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.wire.base import Pending, WireClosed
from mcp_hub.wire.pipe import Pipe
from mcp_hub.wire.server_pipe import ServerPipe
from tests.unit.wire.raw_lines import connected, within
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

NOTE = b'{"jsonrpc":"2.0","method":"notifications/x"}'
LONG = b"y" * 5000


async def answer(pipe: Pipe, pending: Pending) -> Envelope:
    return await within(pipe.answer(pending, None))


@pytest.mark.parametrize(
    "line",
    [
        b'{"result":{"text":"%s","x":NaN},"jsonrpc":"2.0","id":2}' % LONG,
        b'{"result":{"text":"\\ud83d%s"},"jsonrpc":"2.0","id":2}' % (b"y" * (1 << 20)),
        b'{"result":{"x":%s%s},"jsonrpc":"2.0","id":2}' % (b"[" * 100_000, b"]" * 100_000),
        b'{"jsonrpc":"2.0","id":2,"result":{"rows":[{"id":1},{"id":3}],"x":NaN}}',
        NOTE + b'{"jsonrpc":"2.0","id":2,"result":{"x":NaN}}',
    ],
    ids=["number", "half a character", "deep", "other ids", "behind another message"],
)
async def test_an_unreadable_answer_in_whatever_order_ends_its_own_request(line: bytes) -> None:
    async with connected(line_limit=1 << 22, kind=ServerPipe) as (pipe, other, told):
        first, second = pipe.request("m", b"{}"), pipe.request("m", b"{}")
        await other.write(line + b"\n")
        found = await answer(pipe, second)
        assert isinstance(found, Placeholder) and b"-32700" in bytes(found.error)
        assert not first.future.done() and len(told.bad) == pipe.counts["bad"] == 1
        await other.send(id=first.id, result={})
        assert (await answer(pipe, first)).kind == "result"


async def test_a_list_with_an_unreadable_definition_is_a_list_in_whatever_order() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, _):
        pipe.request("m", b"{}")
        for id_, line in (
            (2, b'{"result":{"tools":[{"a":"%s"},{"b":1,}]},"jsonrpc":"2.0","id":2}' % LONG),
            (3, b'{"jsonrpc":"2.0","id":3,"result":{"tools":[{"a":{"id":"abc"}},{"b":NaN}]}}'),
        ):
            pending = pipe.request("tools/list", b"{}")
            assert pending.id == id_
            await other.write(line + b"\n")
            result = (await answer(pipe, pending)).result
            assert b"not-json" in bytes(result)


async def test_a_broken_request_of_the_peer_with_its_id_at_the_end_is_not_taken_for_our_answer() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        line = b'{"method":"roots/list","params":{"result":"%s","x":NaN},"jsonrpc":"2.0","id":1}\n'
        await other.write(line % LONG)
        await told.until("bad")
        assert not pending.future.done()


ONE, TWO = b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}', b'{"result":{"n":2},"jsonrpc":"2.0","id":2}'


@pytest.mark.parametrize("line", [b"INFO done " + NOTE + ONE + TWO + NOTE, b" [%b,%b, %b,%b]" % (NOTE, ONE, TWO, NOTE)])
async def test_messages_that_share_a_line_are_these_messages(line: bytes) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        first, second = pipe.request("m", b"{}"), pipe.request("m", b"{}")
        await other.write(line + b"\n")
        assert bytes((await answer(pipe, first)).result) == b'{"n":1}'
        assert bytes((await answer(pipe, second)).result) == b'{"n":2}'
        assert len(told.notifications) == 2 and not told.bad


TREE = {"jsonrpc": "2.0", "id": 1, "result": {"a": [1, -2.5e3, True, None, {}, [], {"b": '{"[\\'}], "é": ["x"]}}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("indent", [0, 1, 2, "\t"])
async def test_a_message_over_several_lines_is_that_message(indent: int | str, end: str) -> None:
    text = json.dumps(TREE, indent=indent, ensure_ascii=False)
    listed = json.dumps([{"jsonrpc": "2.0", "method": "notifications/x"}], indent=indent)
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(f"starting{end}{text}{end}{listed}{end}".replace("\n", end).encode() + NOTE + b"\n")
        assert json.loads(bytes((await answer(pipe, pending)).result)) == TREE["result"]
        await told.until("notifications", 2)
        assert len(told.bad) == 1 and isinstance(pipe, ServerPipe) and pipe.unfinished is None


@pytest.mark.parametrize(
    ("noise", "count"),
    [
        (b"{\nINFO ready\n", 1),
        (b"{\n  name: 'x',\n}\n", 2),
        (b'{\n"a": 1\n}\n', 1),
        (b"[\n" + b"1,\n" * 600, 1),
        (b"{\n]]\n", 1),
        (b'{\n"half\n', 1),
        (b'{\n{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}\n', 2),  # which is a message itself
        (b"[\n" + b"[]\n" * 60, 1),  # what short lines take besides their text counts
    ],
)
async def test_lines_that_only_begin_like_a_message_are_noise_and_bounded(noise: bytes, count: int) -> None:
    async with connected(line_limit=1024, kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(noise + b"done\n" + ONE + b"\n")
        assert bytes((await answer(pipe, pending)).result) == b'{"n":1}'
        assert count <= len(told.bad) and sum(len(line) for _, line in told.bad) <= 4096


@pytest.mark.parametrize(
    ("line", "opened"),
    [
        (b'{"a\\\\": [1, -2.5e+3, true, null, "{\\"[", {}', 2),
        (b"}]", -2),
        (b'"half', None),
        (b"{'a': 1}", None),
        (b"false start", None),
        (b"1" * 64 + b" x", None),  # must not take 2**64 steps, nor a time stamp thousands
        (b"2026-11-28 17:12:33.123456789 INFO", None),
    ],
)
def test_brackets_of_a_line_are_counted_in_one_pass(line: bytes, opened: int | None) -> None:
    assert depth(line) == opened


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (ONE, "messages with no line break behind them"),
        (ONE + b"\r", "messages with no line break but a carriage return behind them"),
        (ONE + b"\r" + TWO, "messages with no line break but a carriage return behind them"),
        (ONE + b"\0", "messages with no line break but a NUL character behind them"),
        (json.dumps(TREE, indent=2).encode(), "messages with no line break behind them"),
        (ONE[:-1], None),
        (b"ready", None),
        (b"{", None),
    ],
)
async def test_form_of_a_message_that_does_not_end_is_named(text: bytes, form: str | None) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, _):
        await other.write(text)
        await until(lambda: pipe.bytes_read == len(text))
        assert isinstance(pipe, ServerPipe) and pipe.unfinished == form


@pytest.mark.parametrize(
    ("line", "form"),
    [
        (ONE.decode().encode("utf-16"), "UTF-16 text"),
        (ONE.decode().encode("utf-16-be"), "UTF-16 text"),
        (ONE.decode().encode("utf-32-le"), "UTF-32 text"),
        (repr(TREE).encode(), "JSON with single quotes, as Python prints a dict"),
        (b64encode(ONE) + b"\r", "messages in Base64"),
        (b64encode(json.dumps({**TREE, "more": "x" * 9000}).encode()), "messages in Base64"),
        (b64encode(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"result":1}}'), None),
        (b"eyJhbGciOiJIUzI1NiJ9.eyJqc29ucnBjIjoxfQ.c2lnbmF0dXJl", None),
        (b"eyes open", None),
        (b"content-length: 5\r", "Content-Length before each message, as language servers do"),
        (b"{'a': 1}", None),
        (b"a\0b\0c\0", None),
    ],
)
def test_form_of_a_line_that_nobody_can_read_is_named(line: bytes, form: str | None) -> None:
    assert foreign(line) == form


COLOURED = (b"\x1b[32m%b\x1b[0m" % ONE, b"\x1b[2K\x1b[1;31mINFO\x1b[0m " + ONE, b"\xef\xbb\xbf" + ONE)


@pytest.mark.parametrize("line", COLOURED)
async def test_colours_and_a_mark_around_a_message_do_not_count(line: bytes) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(line + b"\n")
        assert bytes((await answer(pipe, pending)).result) == b'{"n":1}'
        assert not told.bad


async def test_very_many_messages_on_a_line_are_no_trap() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        await other.write(NOTE * 20_000 + b"\n" + NOTE + b"\n")
        await told.until("notifications", 64)
        assert len(told.bad) == 1 and not pipe.is_closed


@pytest.mark.parametrize("half", [b'{"jsonrpc":"2.0","id":1,"resu', b'{"jsonrpc":"2.0","result":{"x":NaN},"id":1}'])
async def test_half_an_answer_at_the_end_leaves_the_reason_to_the_end(half: bytes) -> None:
    ended = anyio.Event()
    async with connected(kind=partial(ServerPipe, on_end=ended.set)) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(NOTE + half)
        other.close("write")
        await within(ended.wait())
        pipe.close("exited with code 9")
        with pytest.raises(WireClosed, match="exited with code 9"):
            await answer(pipe, pending)
        assert len(told.notifications) == len(told.bad) == 1, "what is whole counts, and half of a message is told"


async def test_whole_messages_at_the_end_count_behind_all_that_came_before() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(NOTE + b"\n")
        await told.until("notifications")
        await other.write((NOTE + b"\n") * 1000 + NOTE + b'{"jsonrpc":"2.0","id":1,"result":{}}')
        other.close("write")
        await answer(pipe, pending)
        assert len(told.notifications) == 1002 and not told.bad


@pytest.mark.parametrize(
    "line",
    [b"[]", b"[[%s]]" % NOTE, b"[" * 100_000 + b"]" * 100_000, b"[" + b",".join([NOTE] * 129) + b"]", b"[" + NOTE],
    ids=["empty", "in another", "deep", "very many", "cut off"],
)
async def test_an_array_without_messages_is_reported_as_one_line(line: bytes) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        await other.write(line + b"\n" + NOTE + b"\n")
        await told.until("notifications")
        assert len(told.bad) == len(told.notifications) == 1 and not pipe.is_closed


def test_a_callback_is_called_once_also_after_the_outcome() -> None:
    """A pipe may break while the request is written."""
    lost, answered = Pending(1, "tools/call", None), Pending(2, "tools/call", None)
    calls: list[str] = []
    lost.fail(WireClosed("gone"))
    lost.then(lambda: calls.append("lost"))
    answered.then(lambda: calls.append("answered"))
    answered.settle(Envelope())
    answered.fail(WireClosed("gone"))
    assert calls == ["lost", "answered"]


def test_a_settled_request_is_not_in_doubt() -> None:
    pending = Pending(1, "tools/call", None)
    pending.settle(Envelope())
    pending.doubt(Envelope(method="x"))
    assert pending.doubtful is None
