"""The client of a running hub: durable calls that are cut at any byte, killed hubs, servers that are not hubs."""

import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.client import HubStream
from mcp_hub.client.http import connect
from mcp_hub.errors import HubRestarted, InvalidParams
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Failed, Progressed, Started
from tests.e2e.cutting_proxy import cutting_proxy
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT
from tests.upstreams.launch import entry, free_port

pytestmark = pytest.mark.anyio

SECONDS = 3 * WAIT
STEPS = 60


def config(root: Path, **settings: Any) -> str:
    servers = {"jobs": {"local": "mcp_hub.examples.jobs:registry"}, "fix": entry(journal=root / "journal")}
    return json.dumps({"servers": servers, "hub": settings})


def job(steps: int, seconds: float) -> bytes:
    return json.dumps({"steps": steps, "seconds": seconds}).encode()


async def numbered(stream: HubStream, most: int | None = None) -> list[tuple[int, CallEvent]]:
    """Events with their numbers, to the end or so many."""
    found: list[tuple[int, CallEvent]] = []
    while len(found) != most and (event := await anext(stream, None)) is not None:
        found.append((stream.cursor, event))
    return found


async def rest_of(stream: HubStream) -> list[tuple[int, CallEvent]]:
    async with stream:
        return await numbered(stream)


def said(events: list[tuple[int, CallEvent]]) -> str:
    """The text of all partial content."""
    blocks = [block for _, event in events if isinstance(event, Delta) for block in json.loads(bytes(event.content))]
    return "".join(block["text"] for block in blocks)


def check(events: list[tuple[int, CallEvent]]) -> None:
    """Numbers without a gap or a repeat, one start, one ending, and the ending last."""
    assert [seq for seq, _ in events] == list(range(1, len(events) + 1))
    assert [seq for seq, event in events if isinstance(event, Started)] == [1]
    endings = [seq for seq, event in events if isinstance(event, Completed | Failed | Cancelled)]
    assert endings == [len(events)]


@pytest.mark.first(1)
@pytest.mark.parametrize("seed", range(4))
async def test_stream_is_whole_though_connections_are_cut_at_any_byte(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    cuts = iter([chance.randint(0, 2500) for _ in range(12)])
    with anyio.fail_after(SECONDS):
        async with http_hub(config(tmp_path), tmp_path) as hub, connect(hub.url) as direct:
            async with cutting_proxy(hub.url, cuts) as proxy, connect(proxy.url) as client:
                stream = client.stream("jobs_run_job", job(STEPS, 2))
                events = await rest_of(stream)
            check(events)
            assert said(events) == "".join(f"step {step} done\n" for step in range(1, STEPS + 1))
            progress = [event.progress for _, event in events if isinstance(event, Progressed)]
            assert progress == sorted(set(progress)) and progress[-1] == STEPS
            assert stream.stream is not None
            assert await rest_of(direct.resume(stream.stream)) == events
            place = chance.randint(0, len(events))
            assert await rest_of(direct.resume(stream.stream, place)) == events[place:]
            assert [status.stream for status in await direct.streams()] == [stream.stream]
    assert len(proxy.passed) > 3


@pytest.mark.parametrize("seen", [1, 7])
@pytest.mark.first(1)
async def test_hub_that_is_killed_ends_the_stream_once_the_next_one_runs(seen: int, tmp_path: Path) -> None:
    port = ("--port", str(free_port()))
    events: list[tuple[int, CallEvent]] = []
    with anyio.fail_after(SECONDS):
        async with http_hub(config(tmp_path), tmp_path, *port) as hub, connect(hub.url) as client:
            async with client.stream("jobs_run_job", job(1000, 100)) as stream:
                while len(events) < seen:
                    events += await numbered(stream, 1)
                await hub.kill_alone()
                async with http_hub(config(tmp_path), tmp_path, *port) as again:
                    events += await numbered(stream)
                    assert stream.stream is not None
                    async with connect(again.url) as other:
                        assert [seq for seq, _ in await rest_of(other.resume(stream.stream, seen))] == [
                            seq for seq, _ in events[seen:]
                        ]
    check(events)
    ending = events[-1][1]
    assert isinstance(ending, Failed)
    assert isinstance(ending.error, HubRestarted)


async def test_call_continues_without_the_client_that_made_it(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        async with http_hub(config(tmp_path), tmp_path) as hub, connect(hub.url) as client:
            async with client.stream("jobs_run_job", job(3, 1)) as stream:
                await anext(stream)
            left = stream.stream
            detached = await client.start("jobs_run_job", job(2, 0.5), key="mine")
            assert await client.start("jobs_run_job", job(2, 0.5), key="mine") == detached
            with pytest.raises(InvalidParams):
                await client.start("jobs_run_job", job(3, 0.5), key="mine")
            assert left is not None
            for id_ in (left, detached):
                events = await rest_of(client.resume(id_))
                check(events)
                assert isinstance(events[-1][1], Completed)
                status = await client.status(id_)
                assert (status.status, status.tool, status.last) == ("completed", "run_job", len(events))
                assert await rest_of(client.resume(id_, len(events))) == []
                with pytest.raises(InvalidParams):
                    await rest_of(client.resume(id_, len(events) + 1))


# -- what is not a hub, or breaks off


@pytest.mark.proof
async def test_the_example_of_the_page_about_this_client_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "clients-python.md"
    (example,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    settings = {"servers": {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}, "hub": {"prefix": "always"}}
    async with http_hub(json.dumps(settings), tmp_path) as hub:
        program = example.replace("http://127.0.0.1:8765", hub.url)
        with anyio.fail_after(WAIT):
            done = await anyio.run_process([sys.executable, "-c", program])
    lines = done.stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == [*map(str, range(2, 12)), "result:"]
    assert lines[1] == '3 [{"type":"text","text":"step 1 done\\n"}]'
