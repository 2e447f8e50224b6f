"""What a background hub has and answers: its socket, record and lock, the pipes of a client, hellos, open requests."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.app.attached.claim import PrivateSocket, claimed, described
from mcp_hub.app.attached.clients import Hello, pipes
from mcp_hub.app.attached.clients import answer as greeting
from mcp_hub.attach.folder import RECORD, SOCKET, check_socket, is_alive, take_start
from mcp_hub.attach.hello import NEWEST, OLDEST, decoded, encoded, is_whole
from mcp_hub.attach.join import handed
from mcp_hub.attach.open_requests import UnansweredRequests
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import UpstreamUnavailable

pytestmark = pytest.mark.anyio


async def test_a_socket_is_private_goes_with_its_hub_and_leaves_that_of_a_successor(tmp_path: Path) -> None:
    own = PrivateSocket(tmp_path / SOCKET)
    check_socket(str(tmp_path / SOCKET))
    assert own.is_there
    own.close()
    assert not os.listdir(tmp_path)
    old = PrivateSocket(tmp_path / SOCKET)
    new = PrivateSocket(tmp_path / SOCKET)
    old.close()
    assert new.is_there
    new.close()


async def test_a_removed_socket_is_restored_while_somebody_waits_on_it(tmp_path: Path) -> None:
    own = PrivateSocket(tmp_path / SOCKET)
    accepted = []

    async def accept() -> None:
        accepted.append(await own.accept())

    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            await anyio.wait_all_tasks_blocked()
            (tmp_path / SOCKET).unlink()
            assert not own.is_there
            own.restore()
            async with await anyio.connect_unix(tmp_path / SOCKET):
                while not accepted:
                    await anyio.lowlevel.checkpoint()
    accepted[0].close()
    own.close()


async def test_a_connection_whose_serving_crashes_is_closed_and_ends_no_other(tmp_path: Path) -> None:
    own = PrivateSocket(tmp_path / SOCKET)
    served: list[socket.socket] = []

    async def take(connection: socket.socket) -> None:
        served.append(connection)
        if len(served) == 1:
            raise RuntimeError("odd")
        connection.close()

    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(own.serve, take)
            for _ in range(2):
                async with await anyio.connect_unix(tmp_path / SOCKET) as client:
                    with pytest.raises(anyio.EndOfStream):
                        await client.receive()
            tasks.cancel_scope.cancel()
    assert len(served) == 2
    own.close()


def test_lock_and_start_are_of_one_and_the_record_of_a_successor_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with described(tmp_path, "in_one"):
        assert json.loads((tmp_path / RECORD).read_text())["pid"] == os.getpid()
        (tmp_path / RECORD).write_text('{"id": "in_two"}')
    assert json.loads((tmp_path / RECORD).read_text()) == {"id": "in_two"}
    monkeypatch.setattr("mcp_hub.app.attached.claim._PAUSE", 0.0)
    assert not is_alive(str(tmp_path))
    with claimed(tmp_path):
        assert is_alive(str(tmp_path))
        with pytest.raises(UpstreamUnavailable), claimed(tmp_path):
            pass
    assert not is_alive(str(tmp_path))
    first = take_start(str(tmp_path))
    assert first is not None and take_start(str(tmp_path)) is None
    os.close(first)
    second = take_start(str(tmp_path))
    assert second is not None
    os.close(second)


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


SETTINGS = Settings.model_validate({"servers": {"a": {"command": "x"}}, "profiles": {"dev": {"servers": ["a"]}}})
FIELDS = {"build": "1.0", "oldest": str(OLDEST), "newest": str(NEWEST), "cwd": "/home/ann", "pid": "7"}


@pytest.mark.parametrize(
    ("hub", "is_idle", "more", "status"),
    [
        ("1.0", False, {}, "ok"),
        ("0.9", True, {}, "retire"),
        ("0.9", False, {}, "busy"),
        ("0.9", True, {"final": "1"}, "ok"),
        ("2.0", False, {}, "ok"),
        ("1.0", True, {"oldest": str(NEWEST + 1), "newest": str(NEWEST + 1)}, "refused"),
        ("0.9", True, {"oldest": str(NEWEST + 1), "newest": str(NEWEST + 1)}, "retire"),
        ("1.0", True, {"profile": "dev"}, "ok"),
        ("1.0", True, {"profile": "none"}, "refused"),
        ("1.0", True, {"client": "claude-code"}, "ok"),
        ("1.0", True, {"client": "no-such-client"}, "refused"),
    ],
)
def test_the_answer_follows_from_builds_and_wishes(hub: str, is_idle: bool, more: dict[str, str], status: str) -> None:
    reply = greeting(Hello.of({**FIELDS, **more}), hub, SETTINGS, clients=1, is_idle=is_idle)
    assert reply["status"] == status
    assert ("why" in reply) == (status in ("busy", "refused"))
    assert reply.get("build") == (hub if status in ("busy", "ok") else None), "a busy hub that is older says so"


def test_hello_names_open_streams_and_a_hub_takes_a_bounded_number_of_clients() -> None:
    replies = [greeting(Hello.of(FIELDS), "1.0", SETTINGS, clients=n, is_idle=False) for n in (255, 256)]
    assert [reply["status"] for reply in replies] == ["ok", "busy"] and "build" not in replies[1]
    hello = Hello.of({**FIELDS, "streams": '3 st_A\n"x y" st_B'})
    assert hello.streams == {3: "st_A", "x y": "st_B"}
    assert hello.caller.directory == "/home/ann"


def test_fields_come_through_whole_and_what_follows_is_kept() -> None:
    fields = {"cwd": "/a=b\nc", "client": "é\udcff", "empty": ""}
    message = encoded(fields)
    for cut in range(len(message)):
        assert not is_whole(message[:cut])
    assert decoded(message + b"{}\n") == (fields, b"{}\n")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b'{"jsonrpc"', b"mcp-hub attach\0" + b"x" * (1 << 17)])
def test_anything_else_is_not_a_hello(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a hello"):
        is_whole(data)


PYTHON, SCRIPT, SPACED = "python", "script", "spaced"


def call(id_: int | str, style: str, tool: str = "t") -> bytes:
    params = {"name": tool, "arguments": {"id": 7}}
    if style == SCRIPT:
        message = {"method": "tools/call", "params": params, "jsonrpc": "2.0", "id": id_}
    else:
        message = {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}
    return json.dumps(message, separators=None if style == SPACED else (",", ":")).encode() + b"\n"


def answer(id_: int | str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":{"content":[]}}\n' % json.dumps(id_).encode()


def unknown(requests: UnansweredRequests) -> list[object]:
    """The calls that get an error, because nobody knows whether they were done."""
    return [json.loads(error)["id"] for error in requests.again(takes_streams=False).errors]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
def test_an_id_is_open_until_its_own_answer_and_open_again_when_it_is_used_again(style: str) -> None:
    requests = UnansweredRequests()
    requests.asked(call(1, style) + call(2, style) + call(3, style))
    requests.answered(answer(1) + answer(3))
    assert requests.is_open and unknown(requests) == [2] and not requests.is_open
    requests = UnansweredRequests()
    requests.asked(call(1, style))
    requests.answered(answer(1))
    requests.asked(call(1, style))
    assert unknown(requests) == [1]
    requests = UnansweredRequests()
    requests.asked(call(5, style) + call("5", style))
    requests.asked(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"5"}}\n')
    assert unknown(requests) == [5]
    requests.asked(call(5, style))
    requests.answered(answer("5"))
    assert unknown(requests) == [5]
    requests = UnansweredRequests()
    requests.asked(call(1, style) + call(2, style))
    requests.runs_as(b"#stream 1 st_1\n")
    requests.asked(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}\n')
    assert requests.streams() == "1 st_1" and unknown(requests) == [1]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT, SPACED])
@pytest.mark.parametrize("portion", [1, 32])
def test_of_many_calls_only_those_are_open_that_have_no_answer(style: str, portion: int) -> None:
    requests, unanswered = UnansweredRequests(), {3, 500, 998, 999}
    for first in range(0, 1000, portion):
        ids = range(first, min(first + portion, 1000))
        requests.asked(b"".join(call(id_, style, "x" * 200) for id_ in ids))
        requests.answered(b"".join(answer(id_) for id_ in ids if id_ not in unanswered))
    requests.runs_as(b"#stream 998 st_A\n")
    assert requests.streams() == "998 st_A"
    again = requests.again(takes_streams=True)
    assert {json.loads(error)["id"] for error in again.errors} == unanswered - {998}
    assert again.lines == [call(998, style, "x" * 200)]


@pytest.mark.parametrize("style", [PYTHON, SCRIPT])
def test_other_messages_are_understood_and_of_a_long_call_only_its_name_is_kept(style: str) -> None:
    requests = UnansweredRequests()
    level = b'{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"info"}}\n'
    nested = b'{"jsonrpc":"2.0","id":9,"method":"ping","params":{"x":{"jsonrpc":"2.0","id":1}}}\n'
    requests.asked(call(1, style) + level + call(2, style) + nested)
    requests.answered(b'{"jsonrpc":"2.0","method":"n","params":{"m":{"jsonrpc":"2.0","id":1,"result":{}}}}\n')
    requests.answered(b'{"jsonrpc":"2.0","id":"l","result":{}}\n{"jsonrpc":"2.0","id":9,"result":{}}\n' + answer(2))
    again = requests.again(takes_streams=False)
    assert again.lines == [level] and again.known == {"l"}
    assert [json.loads(error)["id"] for error in again.errors] == [1]
    requests = UnansweredRequests()
    requests.asked(call(1, style).replace(b'{"id":7}', b'"%b"' % (b"x" * 100_000)) + call(2, style))
    assert all(len(line) < 1000 for line in requests._calls.values())
    requests.runs_as(b"#stream 1 st_A\n")
    requests.runs_as(b"#stream 2 st_B\n")
    long, short = requests.again(takes_streams=True).lines
    assert short == call(2, style)
    assert json.loads(long)["params"] == {"name": "t"}


def test_what_passes_does_not_pile_up() -> None:
    requests, answers = UnansweredRequests(), b"".join(map(answer, range(300)))
    for _ in range(200):
        requests.answered(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}\n')
        requests.answered(answers)
        assert sum(len(text) for _, text in requests._noted) <= 1 << 16
