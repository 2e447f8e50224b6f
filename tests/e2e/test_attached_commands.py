"""Commands without `--url` find the background hub that clients have attached to, and start nothing."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from rigs.attach.place import Place, echoed
from tests.fork_server import forked_command
from tests.upstreams.child import Child, until
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]


def place_of(root: Path, **settings: Any) -> Place:
    """A place whose commands are forked."""
    place = Place(root, **settings)
    place.program = forked_command()
    return place


@pytest.fixture(scope="module")
async def client(place: Place) -> AsyncIterator[StdioClient]:
    async with place.joined() as client:
        await echoed(client, "up", "b")
        yield client


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with place_of(tmp_path_factory.mktemp("cmd")) as place:
        yield place


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["list"], "a "),
        (["tools"], "a_echo"),
        (["call", "a_echo", "text=hello"], "hello"),
        (["call", "a_echo", "text=x", "--detach"], "st_"),
        (["streams"], "a_echo"),
        (["check"], "a: "),
        (["doctor"], "all fine"),
        (["status"], "servers: 2 ready"),
        (["logs", "a"], "upstream_ready"),
        (["search", "echo"], "a_echo"),
        (["read", "test://a/readme"], "This is a."),
        (["reload"], ""),
        (["open", "--print"], "http://127.0.0.1:"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.first(2)
async def test_command_asks_the_attached_hub(place: Place, client: StdioClient, command: list[str], shown: str) -> None:
    hub, before = place.hub(), (place.starts("a"), place.starts("b"))
    done = await place.command(*command)
    assert (done.returncode, shown in done.stdout + done.stderr) == (0, True), done
    assert (place.hub(), (place.starts("a"), place.starts("b"))) == (hub, before)


async def test_status_names_hub_and_clients(place: Place, client: StdioClient) -> None:
    done = await place.command("status", "--json")
    (hub,) = [hub for hub in json.loads(done.stdout)["hubs"] if hub["pid"] == place.hub()]
    assert hub["version"] and hub["transport"]
    (own,) = [each for each in hub["clients"] if each["process"] == client.pid]
    assert (own["kind"], own["era"], own["build"]) == ("mcp-hub", "handshake", hub["version"]) and own["calls"] >= 1
    assert hub["ends"]["left"] is None and hub["ends"]["idle"] > 0


async def test_restart_restarts_one_server_of_the_attached_hub(place: Place, client: StdioClient) -> None:
    before = place.starts("a"), place.starts("b")
    done = await place.command("restart", "a")
    assert done.returncode == 0, done
    await echoed(client, "again")
    assert (place.starts("a"), place.starts("b")) == (before[0] + 1, before[1])


async def test_logs_follow_the_servers_of_the_attached_hub(place: Place, client: StdioClient) -> None:
    line = [*forked_command(), "logs", "-f", "--config", str(place.config)]

    class Follower(Child):
        text = b""

        async def _collect_stdout(self) -> None:
            assert self.process.stdout is not None
            async for chunk in self.process.stdout:
                self.text += chunk

    async with Follower(line, place.env) as follower:
        for number in range(100):
            await client.call("b_stderr", {"text": f"followed {number}"})
            with anyio.move_on_after(0.2):
                await until(lambda: b"followed" in follower.text)
                break
        assert b"followed" in follower.text


async def test_resume_reads_a_call_of_the_attached_hub_while_it_runs(place: Place, client: StdioClient) -> None:
    begun = await place.command("call", "a_progress", "n=8", "delay=0.2", "nonce=resumed", "--detach")
    assert begun.returncode == 0, begun
    done = await place.command("resume", begun.stdout.strip())
    assert (done.returncode, "resumed" in done.stdout) == (0, True), done


async def test_calls_of_clients_are_listed_whatever_tokens_the_configuration_has(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tokens = [{"token": "a-token-of-ann-1", "principal": "ann"}]
    async with place_of(tmp_path_factory.mktemp("tok"), servers=("a",), hub={"tokens": tokens}) as place:
        async with place.joined() as client:
            await client.call("a_progress", {"n": 2, "nonce": "mine"}, token="t")
            listed = await place.command("streams", "--json")
            (stream,) = json.loads(listed.stdout)["streams"]
            assert stream["name"] == "a_progress"
            done = await place.command("resume", stream["stream"])
            assert (done.returncode, "mine" in done.stdout) == (0, True), done


async def test_open_has_the_hub_listen_on_loopback_and_it_wants_the_token(place: Place, client: StdioClient) -> None:
    address, _, token = (await place.command("open", "--print")).stdout.strip().partition("#token=")
    assert token
    watched = await place.command("top")
    assert watched.returncode == 2 and "[no_display]" in watched.stderr, "it reaches the hub, and has no terminal"
    async with httpx2.AsyncClient(trust_env=False) as http:
        assert (await http.get(address)).status_code == 200
        assert (await http.get(f"{address}api/state")).status_code == 401
        assert "a_echo" not in (await http.get(f"{address}v1/tools")).text
        called = await http.post(f"{address}mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert called.status_code == 405, called.text


async def test_attached_hub_names_a_mistake_in_its_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with place_of(tmp_path_factory.mktemp("bad"), servers=("a",)) as place, place.joined() as client:
        await echoed(client, "before", "a")
        place.config.write_text("servers:\n  a:\n    comand: x\n")
        for command, code in (("status", 0), ("list", 0), ("doctor", 3)):
            done = await place.command(command)
            said = done.stdout + done.stderr
            assert done.returncode == code and f"{place.config}:3: " in said and "hub_outdated" in said, done
        await echoed(client, "after", "a")


async def test_stop_ends_the_attached_hub_and_the_next_client_has_a_new_one(place: Place, client: StdioClient) -> None:
    hub = place.hub()
    done = await place.command("stop")
    assert done.returncode == 0, done
    await place.gone([hub])
    await echoed(client, "after stop")
    assert place.hub() != hub


async def test_without_a_hub_stop_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with place_of(tmp_path_factory.mktemp("none")) as place:
        done = await place.command("stop")
        assert done.returncode == 3 and "no hub" in done.stderr.lower(), done


@pytest.mark.proof
async def test_hub_ends_once_no_client_has_it_and_is_found_without_its_file(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    nowhere = {"MCP_HUB_CONFIG": ""}
    async with place_of(tmp_path_factory.mktemp("out"), servers=("a",)) as place:
        (place.root / "home/.cursor").mkdir(parents=True)
        await place.command("install", "cursor")
        async with place.joined():
            done = await place.command("uninstall", "cursor")
            assert (done.returncode, "Stopped the background hub" in done.stdout) == (0, True), done
            await until(lambda: not place.hubs())
        async with place.joined():
            text = place.config.read_text()
            place.config.unlink()
            shown = await place.command("status", env=nowhere)
            assert (shown.returncode, f"{place.config}, which is gone" in shown.stdout) == (0, True), shown
            done = await place.command("stop", env=nowhere)
            assert (done.returncode, str(place.config) in done.stderr) == (0, True), done
            place.config.write_text(text)


@pytest.mark.parametrize("mode", ["auto", "never"])
async def test_open_starts_the_background_hub_and_prints_the_address_without_a_browser(
    tmp_path_factory: pytest.TempPathFactory, mode: str
) -> None:
    async with place_of(tmp_path_factory.mktemp("open")) as place:
        env = {"MCP_HUB_ATTACH": mode, "BROWSER": "/bin/false", "PATH": "/nowhere"}
        done = await place.command("open", env=env)
        if mode == "never":
            assert done.returncode == 3 and "is never" in done.stderr and "[no_running_hub]" in done.stderr
            assert not place.hubs()
            return
        assert done.returncode == 0 and "Started the background hub." in done.stderr, done
        page, _, token = done.stdout.strip().partition("#token=")
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(page)).status_code == 200 and len(token) == 43
        again = await place.command("open", "--print", env=env)
        assert again.stdout == done.stdout and again.stderr == "" and len(place.hubs()) == 1
