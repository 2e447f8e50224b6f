"""A pipe under pressure: a peer that floods, and one that asks without reading."""

import os

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.protocol.envelope import Envelope, result_frame
from mcp_hub.wire.pipe import Pipe
from tests.unit.wire.raw_lines import WAIT, OtherEnd, Told, connected

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the hub runs on; it reads many times a pass where asyncio's reads once."""
    return "asyncio", {"use_uvloop": True}


class Answering(Told):
    """Answers every request with a kilobyte."""

    pipe: Pipe

    def on_request(self, message: Envelope, source: object = None) -> None:
        super().on_request(message)
        self.pipe.send(result_frame(bytes(message.id), b'"' + b"x" * 1000 + b'"'))  # type: ignore[arg-type]


async def write_until_nobody_reads(end: OtherEnd, line: bytes) -> int:
    """Writes lines until the pipe stays full for a hundred passes of the loop; how many there were."""
    written, refused = 0, 0
    while refused < 100:
        try:
            written += os.write(end.write_fd, line)
            refused = 0
        except BlockingIOError:
            refused += 1
            await anyio.lowlevel.checkpoint()
    assert written % len(line) == 0
    return written // len(line)


async def test_nothing_is_read_from_a_peer_that_asks_without_reading_and_nothing_is_lost() -> None:
    told = Answering()
    async with connected(told, write_limit=10_000, couples=True) as (told.pipe, other):
        line = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'.ljust(127) + b"\n"
        with anyio.fail_after(WAIT):
            asked = await write_until_nobody_reads(other, line)
        assert told.pipe.is_congested
        assert len(told.requests) < asked  # the rest waits in the kernel, where it costs the peer and not the hub
        for _ in range(asked):
            assert (await other.line())["id"] == 7
        assert len(told.requests) == asked and not told.pipe.is_congested


async def test_readers_get_their_turn_between_the_reads_of_a_flood() -> None:
    """What one read brings is a bounded part of a flood, however much the kernel holds."""
    told = Told()
    async with connected(told) as (pipe, other):
        most, seen = 0, 0
        line = b'{"jsonrpc":"2.0","method":"n"}\n'

        def turn() -> None:
            nonlocal most, seen
            most, seen = max(most, len(told.notifications) - seen), len(told.notifications)
            if not pipe.is_closed:
                pipe.soon(turn)

        pipe.soon(turn)
        count = 900_000 // len(line)
        await other.write(line * count)
        assert len(await told.until("notifications", count)) == count
        assert most <= (1 << 18) // len(line) + 1
