"""Processes that end or start slowly: what they wrote counts, and the time of the probe begins when they run."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
from anyio.abc import TaskGroup

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed, UpstreamLost
from mcp_hub.events import Progressed
from mcp_hub.types import Era
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import ServerEras
from mcp_hub.upstreams.peer.state import CONNECTION_LOST
from mcp_hub.upstreams.process import stdio
from mcp_hub.upstreams.process.stdio import StdioConnection, StdioSpec
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.wire import files
from tests.unit.upstreams.function_calls import Doubting, Recorder, request
from tests.upstreams.launch import argv

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

WAIT = 240.0
"""Seconds that nothing here may take."""
SERVER = """
import json, os, subprocess, sys
def send(**message):
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\\n"
for line in sys.stdin.buffer:
    asked = json.loads(line)
    id_ = asked.get("id")
    if asked["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        os.write(1, send(id=id_, result=result))
    elif asked["method"] == "tools/call":
        LAST
"""
FLOOD = """
        told = ({"progressToken": id_, "progress": n} for n in range(9000))
        steps = (send(method="notifications/progress", params=params) for params in told)
        rest = memoryview(b"".join(steps) + send(id=id_, result={"content": []}))
        while rest:
            rest = rest[os.write(1, rest):]
        os._exit(0)
"""
HELD = """
        code = "import time; time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True)
        os._exit(3)
"""


SPLIT = """
        os.write(1, send(id=id_, result={"content": []}).replace(b", ", b",\\n"))
        os._exit(4)
"""
LSP = """
        os.write(1, b"Content-Length: 40\\r\\n\\r\\n" + send(id=id_, result={"content": []}))
        os._exit(4)
"""


@asynccontextmanager
async def process(
    *command: str, eras: ServerEras | None = None, **spec: Any
) -> AsyncIterator[tuple[StdioConnection, TaskGroup]]:
    """A connection to a server that this command starts, and the group in which it may be opened."""
    made = StdioSpec((sys.executable, *command), dict(os.environ), None, **spec)
    with anyio.fail_after(WAIT):
        async with Watchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            connection = StdioConnection("git", lambda: made, eras or ServerEras(EraCache(None), "key"), watchdog)
            try:
                yield connection, tasks
            finally:
                await connection.close()
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def session(last: str) -> AsyncIterator[tuple[StdioConnection, Peer]]:
    """A server that does this when it is called."""
    code = SERVER.replace("        LAST", last)
    async with process("-c", code, era=Era.HANDSHAKE) as (connection, tasks):
        yield connection, await connection.open(tasks)


async def test_an_answer_counts_that_was_written_behind_a_flood_before_the_end() -> None:
    channel = Recorder()
    async with session(FLOOD) as (_, peer):
        done = await peer.call(request("x"), channel)
        assert bytes(done.result) == b'{"content": []}'
        await peer.ending.explained.wait()
    assert not [event for event in channel.sent if not isinstance(event, Progressed)]
    assert peer.ending.cause == ("ended", "exited with code 0")


async def test_what_holds_the_output_of_a_process_that_ended_does_not_hold_its_calls() -> None:
    async with session(HELD) as (_, peer):
        with pytest.raises(UpstreamLost, match="exited with code 3"):
            await peer.call(request("x"), Recorder())


@pytest.mark.parametrize(("last", "said"), [(SPLIT, "it writes JSON over several lines"), (LSP, "Content-Length")])
async def test_reason_of_an_end_names_a_framing_that_is_not_that_of_mcp(last: str, said: str) -> None:
    async with session(last) as (connection, peer):
        with suppress(UpstreamLost):
            await peer.call(request("x"), Doubting())
        await peer.ending.explained.wait()
        cause = await connection.last_words(CONNECTION_LOST)
    assert cause.code == "crashed" and said in cause.reason and "each message on one line" in cause.reason


UNREAD = """
import json, sys
for line in sys.stdin.buffer:
    sent = json.loads(line)
    text = json.dumps({"jsonrpc": "2.0", "id": sent["id"], "result": {"capabilities": {}}})
    sys.stdout.buffer.write(FORM)
    sys.stdout.buffer.flush()
"""


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("text.encode()", "messages with no line break behind them"),
        pytest.param("(text + chr(10)).encode('utf-16')", "UTF-16 text", marks=pytest.mark.proof),
        pytest.param("text.encode() + b'\\r'", "a carriage return behind them", marks=pytest.mark.proof),
        pytest.param("repr(json.loads(text)).encode() + b'\\n'", "single quotes", marks=pytest.mark.proof),
        pytest.param("__import__('base64').b64encode(text.encode()) + b'\\n'", "Base64", marks=pytest.mark.proof),
        pytest.param("b'Content-Length: 9\\r\\n' + text.encode()", "Content-Length", marks=pytest.mark.proof),
    ],
)
async def test_server_whose_messages_nobody_can_read_fails_at_once_with_their_form(form: str, said: str) -> None:
    async with process("-c", UNREAD.replace("FORM", form), era=Era.HANDSHAKE) as (connection, tasks):
        with pytest.raises(StartFailed, match=said) as failed:
            await connection.open(tasks)
        assert failed.value.code == "not_mcp" and "Change how the server writes" in str(failed.value)


SLOW = """
import json, sys
def answer(request, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
probe, hello = (json.loads(sys.stdin.readline()) for _ in range(2))
assert (probe["method"], hello["method"]) == ("server/discover", "initialize")
first = [probe, hello] if sys.argv[1] == "before" else [hello, probe]
known = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "capabilities": {}}
for request in first:
    answer(request, **known)
for line in sys.stdin:
    if "ping" in line:
        answer(json.loads(line))
"""
HELD_START = Path(__file__).parents[2] / "upstreams" / "held_start.py"


class Looks:
    """Counts the looks at what a process has read; `system` is asked for each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int | None] = []
        self.system = files.unread
        self._news = anyio.Event()
        monkeypatch.setattr(stdio, "unread", self._look)

    def _look(self, pipe: IO[bytes]) -> int | None:
        self.seen.append(self.system(pipe))
        self._news.set()
        return self.seen[-1]

    async def wait(self, count: int) -> None:
        """Waits for so many looks from now on."""
        end = len(self.seen) + count
        while len(self.seen) < end:
            self._news = anyio.Event()
            await self._news.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a process has read")
async def test_process_that_has_read_nothing_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, eras = Looks(monkeypatch), ServerEras(EraCache(None), "key")
    command = [str(HELD_START), str(tmp_path / "gate"), *argv("--discover", "silent")]
    async with process(*command, eras=eras, probe=0.0) as (connection, tasks):
        opened: list[Era] = []
        is_open = anyio.Event()

        async def open_it() -> None:
            opened.append((await connection.open(tasks)).info.era)
            is_open.set()

        tasks.start_soon(open_it)
        await looks.wait(5)
        assert set(looks.seen) == {looks.seen[0]} and looks.seen[0], "the probe waits in the pipe"
        assert connection.peer is not None
        assert [pending.method for pending in connection.peer.wire.requests.pending.values()] == ["server/discover"]
        (tmp_path / "gate").touch()
        await is_open.wait()
    assert opened == [Era.HANDSHAKE]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_answer_to_the_probe_that_comes_too_late_counts_at_the_next_start(when: str) -> None:
    eras = ServerEras(EraCache(None), "key")
    async with process("-c", SLOW, when, eras=eras, probe=0.0) as (connection, tasks):
        peer = await connection.open(tasks)
        assert peer.info.era is Era.HANDSHAKE
        await peer.answer(peer.send("ping"))  # which comes after all that was written before
        assert eras.known_eras.speaks == set(Era)
