"""Projected results on every front and in both eras: the fields alone, the whole kept, nothing run twice."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, FRONTS, MODERN, Peer, Seen, connected, http_hub, stdio_session
from tests.unit.cli.command import JOBS
from tests.unit.cli.command import hub as command
from tests.upstreams.child import WAIT
from tests.upstreams.launch import entry, patient, received
from tests.upstreams.messages import PREFIX, Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

PATH = "dev.mcp-hub/path"
WHOLE = "dev.mcp-hub/whole"
BOOKS = {"books": [{"id": n, "title": f"T{n}"} for n in range(3)], "total": 3}
TEXT = {"type": "text", "text": json.dumps(BOOKS)}
RESULT = {"content": [TEXT], "structuredContent": BOOKS}
ARGUMENTS = {"json": json.dumps(RESULT)}


def config(root: Path) -> str:
    """Servers `a` and `j`, and the same as `b` and `k`, where configuration projects a tool."""
    servers: dict[str, Any] = {name: entry(journal=root / name) for name in ("a", "b")}
    servers["b"]["per_tool"] = {"raw": {"path": "$.books[*].id"}}
    servers |= {"j": JOBS, "k": {**JOBS, "per_tool": {"count_*": {"path": "$.words"}}}}
    return json.dumps(patient({"hub": {"task_after": 0}, "servers": servers}))


@pytest.fixture(scope="module")
async def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journals")


@pytest.fixture(scope="module")
async def stdio(root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    async with stdio_session(config(root), tmp_path_factory.mktemp("stdio"), client="claude-code") as client:
        yield client


@pytest.fixture(scope="module")
async def hub(root: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with http_hub(config(root), tmp_path_factory.mktemp("http"), relays_all=False) as running:
        yield running


@pytest.fixture(params=[(front, era) for front in FRONTS for era in ERAS], ids="-".join)
async def peer(request: pytest.FixtureRequest, stdio: StdioClient, hub: Hub) -> AsyncIterator[Peer]:
    front, era = request.param
    async with connected(stdio if front == "stdio" else hub, era) as connected_peer:
        await connected_peer.names()
        yield connected_peer


@pytest.fixture
async def rest(hub: Hub) -> AsyncIterator[RestClient]:
    async with RestClient(hub) as client:
        yield client


def first(seen: Seen) -> Any:
    assert "structuredContent" not in seen.result and not seen.result.get("isError"), seen.answer
    return json.loads(seen.result["content"][0]["text"])


async def test_meta_of_a_call_projects_it_and_read_result_has_the_whole(peer: Peer) -> None:
    seen = await peer.call("a_raw", ARGUMENTS, **{PATH: "$.books[*].title"})
    assert first(seen) == ["T0", "T1", "T2"]
    (id_,) = re.findall(r"read_result id=(r\w+)", seen.result["content"][1]["text"])
    page = await peer.call("read_result", {"id": id_, "path": "$.total"})
    assert page.result["content"][0]["text"] == "3" and seen.result["_meta"][WHOLE] == id_


async def test_the_argument_of_a_runner_projects(peer: Peer) -> None:
    seen = await peer.call("run_tool", {"name": "a_raw", "arguments": ARGUMENTS, "path": "$.total"})
    assert first(seen) == 3
    words = {"name": "j_count_words", "arguments": {"text": "a b"}, "path": "$.words"}
    assert first(await peer.call("read_tool", words)) == 2


async def test_configuration_projects_unless_the_call_has_a_path_of_its_own(peer: Peer) -> None:
    assert first(await peer.call("b_raw", ARGUMENTS)) == [0, 1, 2]
    assert first(await peer.call("run_tool", {"name": "b_raw", "arguments": ARGUMENTS})) == [0, 1, 2]
    assert first(await peer.call("b_raw", ARGUMENTS, **{PATH: "$.total"})) == 3
    assert first(await peer.call("run_tool", {"name": "b_raw", "arguments": ARGUMENTS, "path": "$.total"})) == 3


async def test_errors_come_whole(peer: Peer) -> None:
    failed = {"content": [{"type": "text", "text": '{"total": 1}'}], "isError": True}
    for tool in ("a_raw", "b_raw"):
        seen = await peer.call(tool, {"json": json.dumps(failed)}, **{PATH: "$.total"})
        assert seen.result["isError"] is True and seen.text == '{"total": 1}'


@pytest.mark.parametrize("path", ["books", "$.books[", "$.a | $ENV", "$[?match(@, '(')]", 7])
async def test_an_invalid_path_runs_nothing(peer: Peer, root: Path, path: Any) -> None:
    mark = json.dumps({"content": [], "_meta": {"mark": f"{path}"}})
    seen = await peer.call("a_raw", {"json": mark}, **{PATH: path})
    assert seen.error["code"] == -32602 and "path" in seen.error["message"]
    refused = await peer.call("run_tool", {"name": "a_raw", "arguments": {"json": mark}, "path": path})
    assert refused.result["isError"] is True and "path" in refused.text
    assert all(message["params"]["arguments"] != {"json": mark} for message in received(root / "a", "tools/call"))


async def test_an_argument_of_a_tool_beside_its_name_is_not_taken_for_a_path(peer: Peer) -> None:
    seen = await peer.call("run_tool", {"name": "a_raw", "path": "/tmp/notes.txt"})
    assert seen.result["isError"] is True and "Put the arguments of the tool into `arguments`" in seen.text


async def test_the_key_does_not_reach_the_server(peer: Peer, root: Path) -> None:
    meta: dict[str, Any] = {PATH: "$.total", "com.example/kept": 1}
    await peer.call("a_raw", ARGUMENTS, **meta)
    sent = received(root / "a", "tools/call")[-1]["params"]["_meta"]
    assert sent["com.example/kept"] == 1 and PATH not in sent


async def test_a_path_of_another_request_is_refused(peer: Peer) -> None:
    meta: dict[str, Any] = {PATH: "$.total"}
    seen = await peer.request("prompts/get", {"name": "a_p"}, **meta)
    assert "is for tools/call" in seen.error["message"]
    own = await peer.call("find_tools", {"query": "echo"}, **meta)
    assert "the hub's own" in own.error["message"]
    run = await peer.call("run_tool", {"name": "find_tools", "arguments": {"query": "echo"}, "path": "$.a"})
    assert run.result["isError"] is True and "find_tools is a tool of the hub" in run.text


async def test_a_tool_that_configuration_projects_is_listed_without_output_schema(peer: Peer, rest: RestClient) -> None:
    listed = {tool["name"]: tool for tool in (await rest.ask("GET", "/tools")).json()["tools"]}
    assert "outputSchema" in listed["j_count_words"] and "outputSchema" not in listed["k_count_words"]
    found = await peer.call("find_tools", {"query": "k_count_words", "detail": "full"})
    assert "outputSchema" not in found.text
    assert first(await peer.call("k_count_words", {"text": "a b c"})) == 3


async def test_rest_projects_by_the_query(rest: RestClient) -> None:
    answer = await rest.ask("POST", "/tools/a_raw/call?path=$.books[*].id", {"arguments": ARGUMENTS})
    result = answer.json()["result"]
    assert [block["text"] for block in result["content"]] == ["[0,1,2]"] and "structuredContent" not in result
    kept = await rest.call("read_result", {"id": result["_meta"][WHOLE], "path": "$.total"})
    assert kept.json()["result"]["content"][0]["text"] == "3"
    body = {"arguments": ARGUMENTS, "_meta": {PATH: "$.total"}}
    assert (await rest.ask("POST", "/tools/a_raw/call", body)).json()["result"]["content"][0]["text"] == "3"


async def test_rest_refuses_an_invalid_path_and_runs_nothing(rest: RestClient, root: Path) -> None:
    calls = {"content": "", "tool_calls": [_call("c1")]}
    before = len(received(root / "a", "tools/call"))
    for place, body in (("/tools/a_raw/call?", {"arguments": ARGUMENTS}), ("/tools/call?format=openai&", calls)):
        answer = await rest.ask("POST", f"{place}path=$.a[", body)
        assert answer.status_code == 400 and "at its end" in answer.json()["detail"], answer.text
    assert len(received(root / "a", "tools/call")) == before


def _call(id_: str) -> dict[str, Any]:
    function = {"name": "a_raw", "arguments": json.dumps(ARGUMENTS)}
    return {"id": id_, "type": "function", "function": function}


async def test_calls_of_models_are_projected_alike(rest: RestClient) -> None:
    body = {"content": "", "tool_calls": [_call("c1"), _call("c2")]}
    answer = await rest.ask("POST", "/tools/call?format=openai&path=$.total", body)
    assert [message["content"] for message in answer.json()["messages"]] == ["3", "3"]


async def test_calls_in_a_models_text_are_projected_alike(rest: RestClient) -> None:
    text = f"<tool_call>{json.dumps({'name': 'a_raw', 'arguments': ARGUMENTS})}</tool_call>"
    answer = await rest.ask("POST", "/prompted?format=hermes&call=1&path=$.total", {"text": text})
    assert "3" in json.dumps(answer.json()["messages"]) and "T0" not in json.dumps(answer.json()["messages"])
    assert (await rest.ask("POST", "/prompted?format=hermes&path=$.a[", {"text": text})).status_code == 400


async def test_another_path_is_another_request_of_an_idempotency_key(rest: RestClient) -> None:
    async def call(path: str) -> Any:
        return await rest.ask(
            "POST", f"/tools/a_raw/call?path={path}", {"arguments": ARGUMENTS}, idempotency_key="projected"
        )

    assert (await call("$.total")).json()["result"]["content"][0]["text"] == "3"
    assert (await call("$.total")).json()["result"]["content"][0]["text"] == "3"
    assert (await call("$.books")).json()["code"] == "idempotency_key_reused"


async def test_the_ending_of_a_stream_is_projected(rest: RestClient) -> None:
    started = (await rest.ask("POST", "/tools/a_raw/call?path=$.total", {"arguments": ARGUMENTS})).json()["stream"]
    page = (await rest.ask("GET", f"/streams/{started}/events?after=0")).json()
    assert page["events"][-1]["data"]["result"]["content"] == [{"type": "text", "text": "3"}]


@pytest.mark.parametrize("front", FRONTS)
async def test_the_result_of_a_task_is_projected(front: str, stdio: StdioClient, hub: Hub) -> None:
    async with connected(stdio if front == "stdio" else hub, MODERN) as client:
        peer = Peer(client.wire, MODERN, capabilities={"extensions": {PREFIX + "tasks": {}}})
        created = await peer.call("j_run_job", {"steps": 2, "seconds": 0.5}, **{PATH: "$.status"})
        assert created.result["resultType"] == "task", created
        task: Message = {"status": "working"}
        with anyio.fail_after(WAIT):
            while task["status"] == "working":
                task = (await peer.request("tasks/get", {"taskId": created.result["taskId"]})).result
        assert json.loads(task["result"]["content"][0]["text"]) == "done" and "structuredContent" not in task["result"]


@pytest.mark.processes
def test_the_command_prints_what_a_path_selects(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": {"a": entry(journal=tmp_path / "journal")}}))
    arguments = ["--args-json", json.dumps(ARGUMENTS)]
    shown = command(tmp_path, "call", "a_raw", *arguments, "--path", "$.books[*].title")
    assert (shown.returncode, shown.stdout) == (0, '["T0","T1","T2"]\n'), shown.stderr
    before = len(received(tmp_path / "journal", "tools/call"))
    refused = command(tmp_path, "call", "a_raw", *arguments, "--path", "$.books[")
    assert refused.returncode == 2 and "--path" in refused.stderr and "at its end" in refused.stderr
    assert len(received(tmp_path / "journal", "tools/call")) == before
