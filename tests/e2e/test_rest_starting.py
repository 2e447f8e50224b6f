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


@pytest.mark.first(1)
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


@pytest.mark.first(1)
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


@pytest.mark.first(1)
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


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", ["a call", "a model's call"])
async def test_a_call_waits_for_every_server_that_may_have_a_name_without_prefix(tmp_path: Path, kind: str) -> None:
    text = servers_yaml(
        {"slow": [*HELD, str(tmp_path / "gate"), *argv()]}, hub={"prefix": "never", "first_list_wait": "1ms"}
    )
    async with http_hub(text, tmp_path) as hub, RestClient(hub) as rest, anyio.create_task_group() as tasks:
        assert (await rest.call("echo", {"text": "x"}, prefer="wait=0")).json()["code"] == "starting"

        async def open_soon() -> None:
            (tmp_path / "gate").touch()

        tasks.start_soon(open_soon)
        if kind == "a call":
            answer = await rest.call("echo", {"text": "x"}, prefer="wait=100")
        else:
            body = {"name": "echo", "arguments": {"text": "x"}}
            answer = await rest.ask("POST", "/tools/call?format=mcp", body, prefer="wait=100")
        assert answer.status_code == 200 and "problem" not in answer.text, answer.text


BROKEN = {"command": "mcp-hub-test-no-such-command"}


@pytest.mark.first(1)
@pytest.mark.parametrize("query", ["?server=broken", "?server=broken&format=openai", ""])
async def test_a_list_without_tools_says_that_its_server_is_down(tmp_path: Path, query: str) -> None:
    servers = {"broken": BROKEN, **({"jobs": JOBS} if query else {})}
    async with http_hub(json.dumps({"servers": servers}), tmp_path) as hub, RestClient(hub) as rest:
        await rest.settled()
        answer = await rest.ask("GET", f"/tools{query}")
        assert (answer.status_code, answer.json()["code"]) == (503, "upstream_unavailable"), answer.text
        (down,) = answer.json()["servers"]
        assert down["server"] == "broken" and down["state"] in ("backing_off", "starting", "failed")
        assert down["code"] == "command_not_found" and down["server"] in answer.json()["detail"]
        assert answer.headers["retry-after"] == "5"
        if query:
            assert (await rest.ask("GET", "/tools")).status_code == 200
            assert (await rest.ask("GET", "/tools?server=broke")).json()["code"] == "unknown_server"


async def test_a_server_of_another_profile_is_not_said_to_be_down(tmp_path: Path) -> None:
    tokens = [{"token": "all", "principal": "a"}, {"token": "few", "principal": "b", "profile": "few"}]
    profiles = {"few": {"servers": ["jobs"]}}
    config = {"servers": {"broken": BROKEN, "jobs": JOBS}, "hub": {"tokens": tokens}, "profiles": profiles}
    async with http_hub(json.dumps(config), tmp_path) as hub, RestClient(hub, "few") as rest:
        await rest.settled()
        answer = await rest.ask("GET", "/tools?server=broken")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_server"), answer.text


@pytest.mark.parametrize("path", ["/tools?server=jobs&server=slow", "/tools?format=openai&format=mcp"])
async def test_a_parameter_that_is_there_twice_is_refused(rest: RestClient, path: str) -> None:
    answer = await rest.ask("GET", path)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert path.partition("?")[2].partition("=")[0] in answer.json()["detail"]


async def test_a_call_with_two_paths_is_refused(rest: RestClient) -> None:
    answer = await rest.ask("POST", "/tools/jobs_count_words/call?path=$.words&path=$.a", {"arguments": {"text": "x"}})
    assert answer.status_code == 400 and "path is in the query more than once" in answer.json()["detail"]


async def test_selected_tool_that_a_listed_server_lacks_is_unknown_at_once(rest: RestClient) -> None:
    with anyio.fail_after(WAIT):
        one = await rest.ask("GET", "/tools?tools=jobs_nothing&server=jobs")
    assert (one.status_code, one.json()["code"]) == (404, "unknown_tool")


async def test_calls_of_models_get_the_same_as_a_result(rest: RestClient) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "slow_echo", "arguments": '{"text":"x"}'}}
    answer = (await rest.ask("POST", "/tools/call?format=openai", {"tool_calls": [call]}, prefer="wait=0")).json()
    assert answer["calls"][0]["problem"]["code"] == "starting" and "is starting" in answer["messages"][0]["content"]
