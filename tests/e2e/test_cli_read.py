"""Resources and prompts: `read` and `prompt`, with a running hub and without, and the REST routes under them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest

from tests.e2e.bad_input import ALICE, TOKENS
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.terminal import terminal
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import SECONDS, command_env
from tests.upstreams.launch import entry
from tests.upstreams.surface import PNG

pytestmark = pytest.mark.anyio

NARROW = "narrow-token-0123456789"


class Place:
    """A hub, and commands that ask it or start the same servers."""

    def __init__(self, hub: Hub, root: Path) -> None:
        self.hub, self.root = hub, root

    async def run(self, where: str, *args: str) -> CompletedProcess[bytes]:
        more = ["--url", self.hub.url] if where == "running" else ["--local"]
        env = command_env(self.root, MCP_HUB_TOKEN=ALICE)
        with anyio.fail_after(SECONDS):
            return await anyio.run_process([*forked_command(), *args, *more], check=False, env=env, cwd=self.root)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    servers = {"fix": entry(name="fix"), "other": entry(name="other")}
    tokens = [*TOKENS, {"token": NARROW, "principal": "alice", "profile": "narrow"}]
    settings = {
        "servers": servers,
        "profiles": {"narrow": {"servers": ["other"]}},
        "hub": {"tokens": tokens},
    }
    root = tmp_path_factory.mktemp("read")
    async with http_hub(json.dumps(settings), root) as hub:
        yield Place(hub, root)


WHERE = pytest.mark.parametrize("where", ["running", "own"])
OWN_FIRST = pytest.mark.parametrize("where", ["own", "running"])


@WHERE
@pytest.mark.first(1)
async def test_resource_is_read_as_text_or_as_its_bytes(place: Place, where: str) -> None:
    done = await place.run(where, "read", "test://fix/readme")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"This is fix.\n", b"")
    done = await place.run(where, "read", "test://fix/item/12", "--json")
    assert [own["text"] for own in json.loads(done.stdout)["contents"]] == ["item 12 of fix"]
    assert (await place.run(where, "read", "test://fix/blob")).stdout == PNG
    done = await place.run(where, "read", "test://fix/blob", "--output", where)
    assert done.stdout == b"[resource test://fix/blob image/png 264 bytes]\n"
    assert (place.root / where / "1.png").read_bytes() == PNG


@pytest.mark.first(1)
@WHERE
async def test_prompt_is_got_with_its_arguments(place: Place, where: str) -> None:
    done = await place.run(where, "prompt", "fix_greet", "who=5", "style=Hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"user: Hi, 5, from fix\n", b"")
    done = await place.run(where, "prompt", "fix_greet", "whom=5")
    assert done.returncode == 2
    assert b'fix_greet does not have a parameter "whom". Did you mean "who"?' in done.stderr
    done = await place.run(where, "prompt", "fix_greet", "style=Hi")
    assert done.returncode == 2 and b"fix_greet needs who=" in done.stderr


@pytest.mark.first(1)
@OWN_FIRST
async def test_unknown_resource_and_prompt_end_with_2(place: Place, where: str) -> None:
    done = await place.run(where, "read", "test://fix2/nothing")
    assert done.returncode == 2 and b"test://fix2/nothing" in done.stderr and b"[unknown_entry]" in done.stderr
    done = await place.run(where, "prompt", "fix_great")
    assert done.returncode == 2 and b"Did you mean fix_greet" in done.stderr


@pytest.mark.first(1)
@WHERE
async def test_question_of_a_resource_is_asked_at_the_terminal(place: Place, where: str) -> None:
    more = ["--url", place.hub.url, "--token", ALICE] if where == "running" else ["--local"]

    def work() -> str:
        with terminal(place.root, "read", "test://fix/item/asking", *more) as person:
            person.answer("answer: ", "there")
            person.answer("ecline: ", "y")
            assert person.end() == 0
            return person.text

    with anyio.fail_after(SECONDS):
        assert '"answer": "there"' in await anyio.to_thread.run_sync(work)


async def test_programs_read_and_get_over_rest(place: Place) -> None:
    async with RestClient(place.hub, ALICE) as client:
        read = (await client.ask("POST", "/resources/read", {"uri": "test://fix/readme"})).json()
        assert read["status"] == "completed" and read["result"]["contents"][0]["text"] == "This is fix."
        stream = (await client.ask("GET", f"/streams/{read['stream']}")).json()
        assert (stream["method"], stream["name"], stream["server"]) == ("resources/read", "test://fix/readme", "fix")
        got = (await client.ask("POST", "/prompts/fix_greet/get", {"arguments": {"who": "Bo"}})).json()
        assert got["result"]["messages"][0]["content"]["text"] == "Hello, Bo, from fix"
        for path, body in (("/resources/read", {"uri": "test://no"}), ("/prompts/no/get", {})):
            refused = await client.ask("POST", path, body)
            assert (refused.status_code, refused.json()["code"]) == (404, "unknown_entry")
        assert (await client.ask("POST", "/resources/read", {})).json()["code"] == "invalid_body"


async def test_key_stands_for_one_request_of_any_method(place: Place) -> None:
    async with RestClient(place.hub, ALICE) as client:
        first = await client.ask("POST", "/prompts/fix_fixed/get", {}, idempotency_key="one")
        again = await client.ask("POST", "/prompts/fix_fixed/get", {}, idempotency_key="one")
        assert first.json()["stream"] == again.json()["stream"]
        other = await client.ask("POST", "/resources/read", {"uri": "fix_fixed"}, idempotency_key="one")
        assert other.json()["code"] == "idempotency_key_reused"


async def test_profile_reads_and_gets_only_what_it_has(place: Place) -> None:
    async with RestClient(place.hub, NARROW) as client:
        assert (await client.ask("POST", "/resources/read", {"uri": "test://other/readme"})).status_code == 200
        refused = await client.ask("POST", "/resources/read", {"uri": "test://fix/readme"})
        assert refused.status_code == 404  # the only server that it has is asked, and lacks it
        assert (await client.ask("POST", "/prompts/fix_fixed/get", {})).status_code == 404
