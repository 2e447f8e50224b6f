"""REST while servers start: nothing is said to be missing that may be on its way."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import JOBS
from tests.upstreams.child import WAIT
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

HELD = [sys.executable, str(Path(__file__).parents[1] / "upstreams" / "held_start.py")]


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[RestClient]:
    """A hub whose only server starts once there is a file `gate`."""
    text = servers_yaml({"slow": [*HELD, str(tmp_path / "gate"), *argv()]})
    async with http_hub(text, tmp_path) as hub, RestClient(hub) as rest:
        yield rest


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[RestClient]:
    """The same beside another server, which is up."""
    text = json.loads(servers_yaml({"slow": [*HELD, str(tmp_path / "gate"), *argv()]}))
    text["servers"]["jobs"] = JOBS
    async with http_hub(json.dumps(text), tmp_path) as hub, RestClient(hub) as client:
        assert (await client.call("jobs_count_words", {"text": "x"})).status_code == 200
        yield client


@pytest.mark.parametrize("query", ["", "?format=gemini&strict=1", "?tools=slow_echo"])
async def test_a_list_without_tools_is_a_503_that_names_who_starts(
    alone: RestClient, tmp_path: Path, query: str
) -> None:
    early = await alone.ask("GET", f"/tools{query}")
    assert (early.status_code, early.headers["retry-after"]) == (503, "1")
    assert early.json()["code"] == "starting" and early.json()["starting"] == ["slow"]
    (tmp_path / "gate").touch()
    late = await alone.ask("GET", f"/tools{query}", prefer="wait=100")
    assert late.status_code == 200 and "slow_echo" in late.text and "retry-after" not in late.headers
    assert "starting" not in (await alone.ask("GET", "/tools")).json()


async def test_a_list_that_will_grow_says_so(rest: RestClient) -> None:
    listed = await rest.ask("GET", "/tools")
    assert listed.status_code == 200 and listed.headers["retry-after"] == "1"
    assert listed.json()["starting"] == ["slow"] and [tool["name"] for tool in listed.json()["tools"]]
    openai = await rest.ask("GET", "/tools?format=openai")
    assert openai.headers["retry-after"] == "1" and openai.json()["starting"] == ["slow"]
    whole = await rest.ask("GET", "/tools?server=jobs")
    assert "retry-after" not in whole.headers and "starting" not in whole.json()
    assert (await rest.ask("GET", "/tools?server=slow")).status_code == 503


@pytest.mark.parametrize("kind", ["prompts", "resources"])
async def test_other_lists_say_who_starts_too(rest: RestClient, tmp_path: Path, kind: str) -> None:
    early = await rest.ask("GET", f"/{kind}", prefer="wait=1")
    assert (early.json()[kind], early.json()["starting"], early.headers["retry-after"]) == ([], ["slow"], "1")
    (tmp_path / "gate").touch()
    late = await rest.ask("GET", f"/{kind}", prefer="wait=100")
    assert late.json()[kind] and "starting" not in late.json() and "retry-after" not in late.headers


async def test_a_list_waits_no_longer_than_it_is_asked_to(rest: RestClient) -> None:
    with anyio.fail_after(WAIT):
        assert (await rest.ask("GET", "/tools", prefer="wait=1")).json()["starting"] == ["slow"]


@pytest.mark.parametrize("name", ["slow_echo", "unprefixed", "run_tool"])
async def test_a_call_of_what_may_be_on_its_way_is_a_503_to_be_sent_again(
    rest: RestClient, tmp_path: Path, name: str
) -> None:
    inner = {"name": "slow_echo", "arguments": {"text": "x"}}
    arguments = inner if name == "run_tool" else inner["arguments"]
    early = await rest.call(name, arguments, prefer="wait=0", idempotency_key="once")
    assert (early.status_code, early.headers["retry-after"]) == (503, "1"), early.text
    assert early.json()["code"] == "starting" and early.json()["retryable"] is True
    assert early.json()["starting"] == ["slow"]
    (tmp_path / "gate").touch()
    assert (await rest.ask("GET", "/tools", prefer="wait=100")).status_code == 200
    late = await rest.call(name, arguments, idempotency_key="once")
    assert late.status_code == (404 if name == "unprefixed" else 200), late.text


async def test_a_call_waits_for_its_server(rest: RestClient, tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:

        async def open_soon() -> None:
            (tmp_path / "gate").touch()

        tasks.start_soon(open_soon)
        assert (await rest.call("slow_echo", {"text": "x"})).status_code == 200


async def test_selected_tool_that_a_listed_server_lacks_is_unknown_at_once(rest: RestClient) -> None:
    with anyio.fail_after(WAIT):
        one = await rest.ask("GET", "/tools?tools=jobs_nothing&server=jobs")
    assert (one.status_code, one.json()["code"]) == (404, "unknown_tool")


async def test_calls_of_models_get_the_same_as_a_result(rest: RestClient) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "slow_echo", "arguments": '{"text":"x"}'}}
    answer = (await rest.ask("POST", "/tools/call?format=openai", {"tool_calls": [call]}, prefer="wait=0")).json()
    assert answer["calls"][0]["problem"]["code"] == "starting" and "is starting" in answer["messages"][0]["content"]
