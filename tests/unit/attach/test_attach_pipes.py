"""The pipes that a client hands over to its hub."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_hub.app.attached.clients import pipes
from mcp_hub.attach.join import handed

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


def odd_files(root: Path) -> dict[str, list[int]]:
    """All that a client may hand over in place of the right ends of two pipes, by name."""
    (one_read, one_write), (read, write) = os.pipe(), os.pipe()
    os.mkfifo(root / "fifo")
    fifo, file, null = os.open(root / "fifo", os.O_RDWR), os.open(root / "file", os.O_RDWR | os.O_CREAT), os.devnull
    ours, theirs = socket.socketpair()
    return {
        "both ends of one pipe": [one_read, one_write],
        "both ends of one pipe, turned round": [one_write, one_read],
        "two pipes, turned round": [write, one_read],
        "two ends to read": [read, one_read],
        "two ends to write": [write, one_write],
        "one end twice": [read, read],
        "one end": [read],
        "three ends": [read, one_write, one_read],
        "a pipe that both sides keep open": [fifo, one_write],
        "the same one twice": [fifo, fifo],
        "sockets": [ours.detach(), theirs.detach()],
        "a file": [file, one_write],
        "a pipe and a file": [read, file],
        "a device": [os.open(null, os.O_RDONLY), os.open(null, os.O_WRONLY)],
        "a folder": [os.open(root, os.O_RDONLY), one_write],
        "nothing": [],
    }


ODD = ("both ends of one pipe", "both ends of one pipe, turned round", "two pipes, turned round", "two ends to read",
       "two ends to write", "one end twice", "one end", "three ends", "a pipe that both sides keep open",
       "the same one twice", "sockets", "a file", "a pipe and a file", "a device", "a folder", "nothing")  # fmt: skip


@pytest.mark.parametrize("name", ODD)
async def test_only_the_right_ends_of_two_pipes_are_taken_and_all_else_is_closed(
    connected: tuple[socket.socket, socket.socket], tmp_path: Path, name: str
) -> None:
    odd = odd_files(tmp_path)
    assert tuple(odd) == ODD
    if odd[name]:
        socket.send_fds(connected[0], [b"\0"], odd[name])
    else:
        connected[0].sendall(b"\0")
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(ValueError, match="two pipes"):
        await pipes(connected[1])
    assert set(os.listdir("/dev/fd")) == before
    for file in {file for files in odd.values() for file in files}:
        os.close(file)


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
