"""`run_code` at hubs that are killed: agreement is kept, a bad state ends the run by name, nothing is sent twice."""

import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.calls.code.state import _seal, _Sealed
from mcp_hub.calls.starter import _Continuation
from mcp_hub.stores.keyed_files import KeyedFiles, stored_key
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.interaction.hub_process import hub_process, prepared
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.upstreams.child import WAIT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed"),
]

TOOLS = """
from pathlib import Path

from mcp_hub import tool


@tool
def store(text: str) -> str:
    with Path({written!r}).open("a") as file:
        file.write(text + "\\n")
    return f"stored {{text}}"
"""
SCRIPT = """
import asyncio
first = await tools_store(text="one")
await asyncio.sleep(3)
[first, await tools_store(text="two")]
"""
BOTH = ["stored one", "stored two"]
ENDINGS = ("completed", "tool_error", "failed", "cancelled")


class Place:
    """A folder with a tool that writes, for hubs one after the other or side by side."""

    def __init__(self, root: Path, mode: str, **settings: Any) -> None:
        self.root = root
        self._written = root / "written"
        (root / "writing_tools.py").write_text(TOOLS.format(written=str(self._written)))
        servers = {"tools": {"local": "writing_tools"}}
        self.config = json.dumps({"servers": servers, "hub": {"code": mode, "prefix": "always", **settings}})

    @property
    def written(self) -> list[str]:
        return self._written.read_text().split() if self._written.exists() else []

    @asynccontextmanager
    async def hub(self) -> AsyncIterator[tuple[Hub, RestClient]]:
        async with http_hub(self.config, self.root) as hub, RestClient(hub) as rest:
            yield hub, rest

    def change(self, stream: str, change: Callable[[bytes], bytes]) -> None:
        """Changes the record of a stream in the file."""
        where = "stream = (SELECT number FROM streams WHERE id = ?)"
        with closing(sqlite3.connect(self.root / "state" / "streams.db", isolation_level=None)) as file:
            [[before]] = file.execute(f"SELECT continuation FROM extras WHERE {where}", [stream]).fetchall()
            file.execute(f"UPDATE extras SET continuation = ? WHERE {where}", [change(bytes(before)), stream])

    def of_another_engine(self, continuation: bytes) -> bytes:
        """The state as a hub with another version of the engine would have sealed it."""
        call = msgspec.json.decode(continuation, type=_Continuation).call
        raw = msgspec.json.decode(continuation, type=dict[str, msgspec.Raw])
        box = msgspec.json.decode(raw["how"], type=_Sealed)
        key = stored_key(KeyedFiles(self.root / "state" / "keys"), "request-state")
        assert box.seal == _seal(bytes(box.run), call, box.epoch, box.engine, key)
        box.engine = "pydantic-monty 0.0.1"
        box.seal = _seal(bytes(box.run), call, box.epoch, box.engine, key)
        raw["how"] = msgspec.Raw(msgspec.json.encode(box))
        return msgspec.json.encode(raw)


async def begun(rest: RestClient) -> str:
    return await rest.started("run_code", {"code": SCRIPT})


async def events(rest: RestClient, stream: str) -> list[Any]:
    listed: list[Any] = (await rest.ask("GET", f"/streams/{stream}/events?after=0&wait=0")).json()["events"]
    return listed


async def first_call_over(rest: RestClient, stream: str) -> None:
    """Waits until its result is stored: a write that was on its way would be unknown to the next hub."""
    with anyio.fail_after(WAIT):
        while "tool-result" not in [event["type"] for event in await events(rest, stream)]:  # noqa: ASYNC110
            await anyio.sleep(0.02)


async def questions(rest: RestClient, stream: str) -> list[Any]:
    """Those that are open, once there are some."""
    await rest.until(stream, "input_required", *ENDINGS)
    asked: list[Any] = (await rest.ask("GET", f"/streams/{stream}")).json()["questions"]
    return asked


async def answer(rest: RestClient, stream: str, choice: str) -> None:
    [asked] = await questions(rest, stream)
    body = {"key": asked["key"], "action": "accept", "content": {"answer": choice}}
    response = await rest.ask("POST", f"/streams/{stream}/input", body)
    assert response.status_code == 202, response.text


async def ended(rest: RestClient, stream: str) -> Any:
    """What is known of it at its end, or when it asks."""
    return await rest.until(stream, "input_required", *ENDINGS)


def output(known: Any) -> Any:
    """The value of a script that has ended well."""
    assert known["status"] == "completed", known
    return json.loads(known["result"]["content"][-1]["text"])


@pytest.mark.proof
async def test_agreement_is_kept_by_the_next_hub_which_asks_nothing_more(tmp_path: Path) -> None:
    place = Place(tmp_path, "ask")
    async with place.hub() as (hub, rest):
        stream = await begun(rest)
        await answer(rest, stream, "run")
        await first_call_over(rest, stream)
        await hub.kill_alone()
    async with place.hub() as (_, rest):
        assert output(await ended(rest, stream)) == BOTH
        asked = [event["type"] for event in await events(rest, stream) if event["type"].startswith("input-")]
    assert place.written == ["one", "two"] and asked == ["input-required", "input-received"]


async def test_agreement_to_one_call_is_not_wider_at_the_next_hub(tmp_path: Path) -> None:
    place = Place(tmp_path, "ask")
    async with place.hub() as (hub, rest):
        stream = await begun(rest)
        await answer(rest, stream, "once")
        await first_call_over(rest, stream)
        await hub.kill_alone()
    async with place.hub() as (_, rest):
        [asked] = await questions(rest, stream)
        assert '"two"' in asked["params"]["message"] and place.written == ["one"]
        await answer(rest, stream, "no")
        known = await ended(rest, stream)
    assert known["status"] == "tool_error" and "PermissionError" in known["result"]["content"][0]["text"]
    assert place.written == ["one"]


async def test_question_that_was_open_is_asked_by_the_next_hub_and_counts_there(tmp_path: Path) -> None:
    place = Place(tmp_path, "ask")
    async with place.hub() as (hub, rest):
        stream = await begun(rest)
        await questions(rest, stream)
        await hub.kill_alone()
    async with place.hub() as (hub, rest):
        await answer(rest, stream, "run")
        await first_call_over(rest, stream)
        await hub.kill_alone()
    async with place.hub() as (_, rest):
        assert output(await ended(rest, stream)) == BOTH
    assert place.written == ["one", "two"]


def _tampered(continuation: bytes) -> bytes:
    """Another script than that which was sealed."""
    before, _, state = continuation.rpartition(rb"\"two\"")
    assert before
    return before + rb"\"six\"" + state


def _cut(continuation: bytes) -> bytes:
    return continuation[: len(continuation) // 2]


@pytest.mark.parametrize(
    ("kind", "reason"), [("engine", "another engine"), ("seal", "seal"), ("cut", "cannot be read")]
)
async def test_state_that_cannot_be_used_ends_the_run_by_name_with_its_calls(
    tmp_path: Path, kind: str, reason: str
) -> None:
    place = Place(tmp_path, "all")
    async with place.hub() as (hub, rest):
        stream = await begun(rest)
        await first_call_over(rest, stream)
        await hub.kill_alone()
    place.change(stream, {"engine": place.of_another_engine, "seal": _tampered, "cut": _cut}[kind])
    async with place.hub() as (_, rest):
        known = await ended(rest, stream)
        error = (await events(rest, stream))[-1]
    assert known["status"] == "failed" and error["type"] == "error"
    assert error["data"]["code"] == "code_not_resumable" and reason in json.dumps(error["data"]), error
    [made] = error["data"]["jsonrpc"]["data"]["calls"]
    assert (made["tool"], made["outcome"]) == ("tools_store", "ok")
    assert place.written == ["one"]


@pytest.mark.first(1)
@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_hub_that_dies_in_the_middle_of_a_state_s_write_has_sent_nothing_of_it(tmp_path: Path, at: int) -> None:
    place = Place(tmp_path, "all")
    (tmp_path / "servers.yaml").write_text(prepared(place.config))
    command = [sys.executable, "-m", "tests.e2e.dying_hub", "serve", "--http", "--port", "0"]
    env = {"MCP_HUB_STATE_DIR": str(tmp_path / "state"), "DIES_AT": str(at)}
    async with Hub([*command, "--config", str(tmp_path / "servers.yaml")], env) as hub:
        hub.url = (await hub.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp")).group()
        async with RestClient(hub) as rest:
            stream = await begun(rest)
            with anyio.fail_after(WAIT):
                while hub.returncode is None:  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.02)
        assert place.written == ["one"] * (at > 2), "the second state says that no other hub runs the same"
    async with place.hub() as (_, rest):
        known = await ended(rest, stream)
    if at == 3:  # it was the outcome of the first call
        assert "OutcomeUnknown" in known["result"]["content"][0]["text"] and place.written == ["one"]
    else:
        assert output(known) == BOTH and place.written == ["one", "two"]


async def test_same_script_at_a_second_hub_gets_the_run_of_the_first_that_was_killed(tmp_path: Path) -> None:
    place = Place(tmp_path, "all")
    async with hub_process(place.config, tmp_path) as hub, hub_process(place.config, tmp_path) as other:
        async with RestClient(hub) as rest, RestClient(other) as beside:
            stream = await begun(rest)
            await first_call_over(rest, stream)
            again = await begun(beside)
            await hub.kill_alone()
            values = [output(await ended(beside, id_)) for id_ in (stream, again)]
    assert again != stream and values == [BOTH, BOTH] and place.written == ["one", "two"]


async def test_script_of_a_hub_that_was_stopped_is_continued_by_the_next_one(tmp_path: Path) -> None:
    place = Place(tmp_path, "all")
    async with place.hub() as (_, rest):
        stream = await begun(rest)
        await first_call_over(rest, stream)
    async with place.hub() as (_, rest):
        assert output(await ended(rest, stream)) == BOTH
    assert place.written == ["one", "two"]


@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_script_of_a_replica_that_was_stopped_is_continued_by_another_one(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "server") as server:
        place = Place(tmp_path, "all", store={"url": server.url, "lease": 1.0})
        async with hub_process(place.config, tmp_path, name="one") as hub:
            async with hub_process(place.config, tmp_path, name="two") as other, RestClient(other) as beside:
                async with RestClient(hub) as rest:
                    stream = await begun(rest)
                    await first_call_over(rest, stream)
                await hub.stop()
                assert output(await ended(beside, stream)) == BOTH
    assert place.written == ["one", "two"]
