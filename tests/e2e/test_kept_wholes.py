"""The whole of a projected result is its caller's: to another principal its id, its stream and the numbers in it are as
unknown as those that were never given, over MCP and REST, before and after a restart.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.unit.cli.command import JOBS
from tests.upstreams.child import WAIT
from tests.upstreams.launch import entry, patient
from tests.upstreams.messages import PREFIX

pytestmark = pytest.mark.anyio

PATH, WHOLE = "dev.mcp-hub/path", "dev.mcp-hub/whole"
SECRET = "the title of Alice"
BOOKS = {"books": [{"title": SECRET}, {"title": "another"}], "total": 2}
ARGUMENTS = {"json": json.dumps({"content": [{"type": "text", "text": json.dumps(BOOKS)}]})}


class Kept(NamedTuple):
    """A whole, and the stream of the call whose result names it."""

    whole: str
    stream: str


NEVER = Kept("raaaaaaaaaaaa", "st_00000000000000000000000000")


@pytest.fixture(scope="module")
async def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wholes")


@asynccontextmanager
async def shared_hub(root: Path) -> AsyncIterator[Hub]:
    servers = {"a": entry(), "j": JOBS}
    settings = patient({"hub": {"tokens": TOKENS, "history": {"arguments": "full"}}, "servers": servers})
    async with http_hub(json.dumps(settings), root, relays_all=False) as hub:
        yield hub


async def kept(hub: Hub) -> Kept:
    """What Alice has of a call over REST."""
    async with RestClient(hub, ALICE) as rest:
        await rest.settled()
        answer = (await rest.ask("POST", "/tools/a_raw/call?path=$.total", {"arguments": ARGUMENTS})).json()
        assert answer["result"]["content"] == [{"type": "text", "text": "2"}], answer
        return Kept(answer["result"]["_meta"][WHOLE], answer["stream"])


READS: list[dict[str, Any]] = [{}, {"offset": 9}, {"limit": 4}, {"grep": "title"}, {"path": "$.books[*].title"}]


def requests_of(one: Kept, era: str) -> list[tuple[str, dict[str, Any]]]:
    """Everything that a client of MCP can ask about them."""
    calls = [("read_result", {"id": one.whole, **how}) for how in READS]
    calls += [("run_tool", {"name": "read_result", "arguments": {"id": one.whole}})]
    calls += [("read_tool", {"name": "read_result", "arguments": {"id": one.whole}, "path": "$.total"})]
    calls += [("hub_calls", {"id": one.stream, **how}) for how in ({}, {"after": 0}, {"after": 1})]
    calls += [("hub_cancel", {"stream": one.stream})]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": name, "arguments": arguments}) for name, arguments in calls
    ]
    asked += [("resources/read", {"uri": f"mcp-hub://result/{one.whole}"})]
    asked += [(f"{PREFIX}streams.read", {"stream": one.stream, **how}) for how in ({}, {"after": 0}, {"after": 1})]
    if era == MODERN:
        asked += [(method, {"taskId": one.stream}) for method in ("tasks/get", "tasks/cancel")]
    return asked


async def heard(peer: Peer, one: Kept) -> list[str]:
    """The answers without the ids that were asked for."""
    seen = [await peer.request(method, params) for method, params in requests_of(one, peer.era)]
    return [_bare(json.dumps({**answer.answer, "id": 0}), one) for answer in seen]


async def heard_over_rest(rest: RestClient, one: Kept) -> list[tuple[int, str]]:
    call = {"name": "read_result", "arguments": {"id": one.whole}}
    asked: list[tuple[str, str, Any, dict[str, str]]] = [
        *(("POST", "/tools/read_result/call", {"arguments": {"id": one.whole, **how}}, {}) for how in READS),
        ("POST", "/tools/run_tool/call", {"arguments": call}, {}),
        ("POST", "/tools/hub_calls/call", {"arguments": {"id": one.stream}}, {}),
        ("POST", "/tools/call?format=mcp", {"id": "c1", **call}, {}),
        ("POST", "/prompted?format=hermes&call=1", {"text": f"<tool_call>{json.dumps(call)}</tool_call>"}, {}),
        ("GET", f"/streams/{one.stream}", None, {}),
        *(("GET", f"/streams/{one.stream}/events?after={after}&wait=0", None, {}) for after in (0, 1)),
        ("GET", f"/streams/{one.stream}/events", None, {"accept": "text/event-stream"}),
        ("GET", f"/streams/{one.stream}/events", None, {"accept": "application/x-ndjson"}),
        ("GET", f"/streams/{one.stream}/events", None, {"accept": "text/event-stream", "last_event_id": "1"}),
        ("POST", f"/streams/{one.stream}/input", {"key": "q1", "action": "accept", "content": {}}, {}),
        ("DELETE", f"/streams/{one.stream}", None, {}),
        ("GET", f"/history/{one.stream}", None, {}),
        ("POST", f"/history/{one.stream}/run", {}, {}),
    ]
    answers = [await rest.ask(method, path, body, **headers) for method, path, body, headers in asked]
    return [(answer.status_code, _of_nobody(_bare(answer.text, one))) for answer in answers]


def _bare(text: str, one: Kept) -> str:
    return text.replace(one.whole, "WHOLE").replace(one.stream, "STREAM")


def _of_nobody(text: str) -> str:
    """Without the id and time of Bob's own call, which is a stream, too."""
    try:
        answer = json.loads(text)
    except ValueError:
        return text
    if isinstance(answer, dict):
        answer.pop("stream", None)
        answer["calls"] = [{**call, "stream": None} for call in answer.get("calls", ())]
    return json.dumps(answer)


@pytest.fixture(scope="module", params=["running", "restarted"])
async def hub_and_kept(request: pytest.FixtureRequest, root: Path) -> AsyncIterator[tuple[Hub, Kept]]:
    folder = root / request.param
    folder.mkdir()
    async with shared_hub(folder) as hub:
        one = await kept(hub)
        if request.param == "running":
            yield hub, one
    if request.param == "restarted":
        async with shared_hub(folder) as hub:
            async with RestClient(hub, ALICE) as rest:
                await rest.settled()
            yield hub, one


@pytest.mark.parametrize("era", ERAS)
async def test_another_principal_never_reads_a_kept_whole_over_mcp(hub_and_kept: tuple[Hub, Kept], era: str) -> None:
    hub, one = hub_and_kept
    async with connected(hub, era, BOB) as bob:
        await bob.names()
        answers = await heard(bob, one)
        assert answers == await heard(bob, NEVER) and SECRET not in "".join(answers)
    async with connected(hub, era, ALICE) as alice:
        assert SECRET in "".join(await heard(alice, one)), "the same questions of its owner"


async def test_another_principal_never_reads_a_kept_whole_over_rest(hub_and_kept: tuple[Hub, Kept]) -> None:
    hub, one = hub_and_kept
    async with RestClient(hub, BOB) as bob:
        answers = await heard_over_rest(bob, one)
        assert answers == await heard_over_rest(bob, NEVER) and SECRET not in str(answers)
    async with RestClient(hub, ALICE) as alice:
        owned = await heard_over_rest(alice, one)
        assert SECRET in str(owned) and sum(a != b for a, b in zip(owned, answers, strict=True)) > len(READS)


async def resumed(client: HttpClient, last: str) -> str:
    with anyio.fail_after(WAIT):
        async with client.listen(last) as events:
            return (await events.rest()).text


async def test_a_call_is_not_resumed_by_another_principal(hub_and_kept: tuple[Hub, Kept]) -> None:
    hub, _ = hub_and_kept
    async with connected(hub, HANDSHAKE, ALICE) as alice, connected(hub, HANDSHAKE, BOB) as bob:
        assert isinstance(alice.wire, HttpClient) and isinstance(bob.wire, HttpClient)
        meta = {PATH: "$.status", "progressToken": 1}
        params = {"name": "j_run_job", "arguments": {"steps": 2, "seconds": 0.2}, "_meta": meta}
        async with alice.wire.stream(alice.wire.message("tools/call", params)) as stream:
            last = (await stream.next_event()).id
        assert last is not None
        never = last.replace(last.partition(":")[0], NEVER.stream)
        assert await resumed(bob.wire, last) == await resumed(bob.wire, never)
        assert WHOLE in await resumed(alice.wire, last)


async def test_the_same_call_of_another_principal_keeps_a_whole_of_its_own(hub_and_kept: tuple[Hub, Kept]) -> None:
    hub, one = hub_and_kept
    async with connected(hub, MODERN, BOB) as bob:
        await bob.names()
        seen = await bob.call("a_raw", ARGUMENTS, **{PATH: "$.total"})
        assert seen.result["_meta"][WHOLE] == one.whole, "an id is a hash of the content"
        assert SECRET in json.dumps((await bob.call("read_result", {"id": one.whole})).result)
