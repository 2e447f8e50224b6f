"""The pipes that a client hands over to its hub."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_hub.app.attached.clients import pipes
from mcp_hub.attach.pipes import handed

pytestmark = pytest.mark.anyio


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def test_the_two_sides_read_what_the_other_one_writes(connected: tuple[socket.socket, socket.socket]) -> None:
    client = handed(connected[0])
    read, write = await pipes(connected[1])
    with read, write:
        assert not os.get_inheritable(read.fileno()) and not os.get_inheritable(write.fileno())
        os.write(client.write, b"asked")
        write.write(b"answered")
        assert (read.read(10), os.read(client.read, 10)) == (b"asked", b"answered")
        client.end()
        assert read.read(10) == b""
    assert os.read(client.read, 10) == b""
    client.close()


async def test_a_client_that_hands_over_anything_else_is_refused(
    connected: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    with (tmp_path / "file").open("wb") as file:
        socket.send_fds(connected[0], [b"\0"], [file.fileno(), file.fileno()])
    with pytest.raises(ValueError, match="two pipes"):
        await pipes(connected[1])
    connected[0].sendall(b"\0")
    with pytest.raises(ValueError, match="two pipes"):
        await pipes(connected[1])
    connected[0].close()
    with pytest.raises(ValueError, match="two pipes"):
        await pipes(connected[1])
