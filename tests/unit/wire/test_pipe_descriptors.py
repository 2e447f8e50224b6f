"""Descriptors of a pipe: each is closed once, while it is the file's own, also by uvloop, which closes them itself."""

import asyncio
import io
import os
import sys

import pytest

from mcp_hub.wire.pipe import Pipe
from tests.unit.wire.raw_lines import Told


class Seen(io.FileIO):
    """A file that notes whether its descriptor was still its own when it was closed."""

    was_open: bool | None = None

    def close(self) -> None:
        if not self.closed:
            self.was_open = os.path.exists(f"/proc/self/fd/{self.fileno()}")
        super().close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_descriptor_is_not_closed_by_its_number_once_it_may_be_another_files() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def check() -> None:
        counts = []
        for _ in range(2):  # with the first pipe the loop opens descriptors of its own
            its_read, our_write = os.pipe()
            our_read, its_write = os.pipe()
            read, write = Seen(our_read, "rb"), Seen(our_write, "wb")
            pipe = Pipe(Told(), line_limit=1 << 20)
            await pipe.open(read, write)
            pipe.close()
            for _ in range(5):
                await asyncio.sleep(0)
            os.close(its_read)
            os.close(its_write)
            assert (read.was_open, write.was_open) == (True, True)
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[0] == counts[1], "nothing is left open"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("passes", [1, 2, 3])
def test_pipe_that_is_cancelled_while_it_opens_leaves_nothing_open(passes: int) -> None:
    async def check() -> None:
        its_read, our_write = os.pipe()
        our_read, its_write = os.pipe()
        read, write = Seen(our_read, "rb"), Seen(our_write, "wb")
        pipe = Pipe(Told(), line_limit=1 << 20)
        opening = asyncio.ensure_future(pipe.open(read, write))
        for _ in range(passes):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        pipe.close()
        for _ in range(5):
            await asyncio.sleep(0)
        os.close(its_read)
        os.close(its_write)
        assert (read.was_open, write.was_open) == (True, True)

    asyncio.run(check())
