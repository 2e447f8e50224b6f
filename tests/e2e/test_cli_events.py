"""`mcp-hub events` against a running hub: types, the next event, all that follow, texts of strangers."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.fork_server import forked_command
from tests.interaction.fronts import MODERN, http_hub
from tests.interaction.occurring import Service, config
from tests.unit.cli.command import SECONDS

pytestmark = pytest.mark.anyio

ANN = {"token": "a" * 32, "principal": "ann", "profile": "all"}
BEN = {"token": "b" * 32, "principal": "ben", "profile": "few"}
DONE, OTHER = "ci_build_done", "ci_build_other"


class Builds:
    def __init__(self, hub: Hub, service: Service) -> None:
        self.hub = hub
        self.service = service

    def command(self, *args: str, token: str = ANN["token"]) -> list[str]:
        return [*forked_command(), "events", *args, "--url", self.hub.url, "--token", token]

    async def run(self, *args: str, token: str = ANN["token"]) -> subprocess.CompletedProcess[bytes]:
        with anyio.fail_after(SECONDS):
            return await anyio.run_process(self.command(*args, token=token), check=False, env=dict(os.environ), cwd="/")

    async def cursor(self, name: str = DONE) -> str:
        """The position of now."""
        async with RestClient(self.hub, ANN["token"]) as client:
            page = (await client.ask("GET", f"/events?name={name}&wait=0")).json()
        return str(page["cursor"])


@pytest.fixture(scope="module")
async def builds(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Builds]:
    root = tmp_path_factory.mktemp("builds")
    service = Service(root, "ci")
    settings = json.loads(config({"ci": service.argv(MODERN, "push")}, tokens=[ANN, BEN]))
    settings["profiles"] = {"all": {}, "few": {"events": {"deny": ["*_other"]}}}
    async with http_hub(json.dumps(settings), root) as hub:
        yield Builds(hub, service)


async def test_types_are_listed_for_people_and_as_json(builds: Builds) -> None:
    done = await builds.run()
    assert done.returncode == 0, done.stderr
    assert b"ci_build_done" in done.stdout and b"A build has ended" in done.stdout
    listed = json.loads((await builds.run("--json")).stdout)
    assert [event["name"] for event in listed["events"]] == [DONE, OTHER]
    few = json.loads((await builds.run("--json", token=BEN["token"])).stdout)
    assert [event["name"] for event in few["events"]] == [DONE]


async def test_next_events_are_printed_and_the_cursor_continues_behind_them(builds: Builds) -> None:
    begun = await builds.cursor()
    builds.service.happens(1, 2)
    done = await builds.run(DONE, "--json", "--after", begun)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["data"]["n"] for event in events] == [1, 2][: len(events)]
    cursor = done.stderr.decode().rpartition("cursor: ")[2].strip()
    assert cursor == events[-1]["cursor"]
    builds.service.happens(3)
    again = await builds.run(DONE, "--after", cursor)
    number = len(events) + 1
    assert again.stdout.decode().splitlines()[0] == f'2026-11-30T10:00:00Z {{"n":{number}}}'


async def test_followed_events_come_until_ctrl_c_which_leaves_a_cursor(builds: Builds) -> None:
    begun = await builds.cursor()
    command = builds.command(DONE, "--follow", "--json", "--after", begun)
    with anyio.fail_after(SECONDS):
        async with await anyio.open_process(command, cwd="/") as process:
            assert process.stdout is not None and process.stderr is not None
            lines = BufferedByteReceiveStream(process.stdout)
            for number in (11, 12):
                builds.service.happens(number)
                event = json.loads(await lines.receive_until(b"\n", 1 << 16))
                assert event["data"]["n"] == number
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            said = b"".join([chunk async for chunk in process.stderr]).decode()
    assert said.rpartition("cursor: ")[2].strip() == event["cursor"]


async def test_texts_of_a_server_cannot_drive_a_terminal(builds: Builds) -> None:
    begun = await builds.cursor()
    with builds.service.file.open("a") as file:
        file.write(json.dumps({"text": "\x9b31m\u202e\x1b]0;x\x07"}, ensure_ascii=False) + "\n")
    shown = (await builds.run(DONE, "--after", begun)).stdout.decode()
    assert not {"\x9b", "\x1b", "\x07", "\u202e"} & set(shown) and "31m" in shown


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (("ci_build_dune",), 2, "Did you mean ci_build_done"),
        ((OTHER,), 2, "branch is missing"),
        ((DONE, "--args", "[]"), 2, "has to be a JSON object"),
        (("--follow",), 2, "Give its NAME"),
    ],
)
async def test_mistake_is_said(builds: Builds, args: tuple[str, ...], code: int, text: str) -> None:
    done = await builds.run(*args)
    assert done.returncode == code and text in done.stderr.decode()


async def test_hidden_type_cannot_be_followed(builds: Builds) -> None:
    done = await builds.run(OTHER, "--args", '{"branch":"x"}', token=BEN["token"])
    assert done.returncode == 2 and "there is no event type" in done.stderr.decode()
