"""Results that are too long for a model: what it sees, how it gets the rest, and who else does, on every front."""

import hashlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.catalog.tokens import estimate
from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, FRONTS, HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_session
from tests.upstreams import large_results as large
from tests.upstreams.messages import PREFIX, Message, modern
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

LIMIT = 8000
WIDE = 100_000
STREAMS = "dev.mcp-hub/streams"
NOTICE = re.compile(r'\[… (?P<what>[^\n]*) cut; read_result id=(?P<id>r[a-z2-7]{12}) (?P<where>[^\n]*?)\](?=["\n]|$)')
CUT = ("log", "fails", "unlisted")
"""Tools whose result is one text that is cut."""


def config(**hub: Any) -> str:
    server = {"command": sys.executable, "args": [large.SERVER], "era": "handshake"}
    profiles = {"whole": {"max_result_tokens": 0}, "search": {"expose": "search"}, "wide": {"max_result_tokens": WIDE}}
    return json.dumps({"hub": {"prefix": "never", **hub}, "servers": {"large": server}, "profiles": profiles})


@pytest.fixture(scope="module")
async def stdio(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StdioClient]:
    async with stdio_session(config(), tmp_path_factory.mktemp("stdio"), client="claude-code") as client:
        await client.request("tools/list")
        yield client
        assert client.noise == [] and await client.close() == 0


@pytest.fixture(scope="module")
async def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("http")


@pytest.fixture(scope="module")
async def hub(root: Path) -> AsyncIterator[Hub]:
    async with http_hub(config(tokens=TOKENS, task_after=0), root, relays_all=False) as running:
        yield running


@pytest.fixture(params=[(front, era) for front in FRONTS for era in ERAS], ids="-".join)
async def peer(request: pytest.FixtureRequest, stdio: StdioClient, hub: Hub) -> AsyncIterator[Peer]:
    front, era = request.param
    async with connected(stdio if front == "stdio" else hub, era, ALICE) as connected_peer:
        await connected_peer.names()
        yield connected_peer


@pytest.fixture
async def alice(hub: Hub) -> AsyncIterator[Peer]:
    async with connected(hub, HANDSHAKE, ALICE) as connected_peer:
        await connected_peer.names()
        yield connected_peer


def text_of(result: Message) -> str:
    (block,) = result["content"]
    return str(block["text"])


def others_of(result: Message) -> Message:
    """Everything but the blocks, and what the hub says of the stream."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key != STREAMS}
    members = {key: value for key, value in result.items() if key not in ("content", "_meta", "resultType")}
    return {**members, "_meta": meta} if meta else members


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_shown(shown: str, whole: str) -> re.Match[str]:
    """That a model sees the beginning, the end, and in between a notice that says how much is left out and where."""
    notice = NOTICE.search(shown)
    assert notice is not None and len(NOTICE.findall(shown)) == 1
    head, tail = shown[: notice.start()].rstrip('"'), shown[notice.end() :].lstrip('",\n')
    assert whole.startswith(head.rstrip("\n,")) and whole.endswith(tail)
    assert LIMIT * 0.75 <= estimate(shown) <= LIMIT
    assert 2 <= len(head) / len(tail) <= 5, "some 70 % and 20 %"
    (left_out,) = re.findall(r"\((\d+) bytes\)", notice["what"])
    assert abs(int(left_out) - (len(whole.encode()) - len(head.encode()) - len(tail.encode()))) <= 4
    return notice


async def pages(peer: Peer, id_: str, limit: int, how: Message) -> AsyncIterator[str]:
    """All that there is to read, one page after the other, for a client with this limit."""
    offset: int | None = 0
    while offset is not None:
        result = (await peer.call("read_result", {"id": id_, "offset": offset, **how})).result
        page, said = (block["text"] for block in result["content"])
        assert not result["isError"] and len(page.encode()) <= limit * 16
        yield page
        following = re.search(r"next: offset=(\d+)\]$", said)
        assert following is not None or said.endswith("this is the end]")
        offset = int(following[1]) if following else None


async def everything(peer: Peer, id_: str, limit: int = LIMIT, **how: Any) -> str:
    return "".join([page async for page in pages(peer, id_, limit, how)])


# -- what the model sees


def kept(root: Path) -> Iterator[Path]:
    """The files of what was cut."""
    yield from (root / "state" / "results").glob("*-r*")


async def test_structured_content_is_whole_where_its_schema_is_listed_and_left_out_of_others(hub: Hub) -> None:
    whole = json.loads(large.structured())
    async with connected(hub, HANDSHAKE, ALICE) as full:
        listed = {tool["name"]: tool for tool in (await full.request("tools/list")).result["tools"]}
        assert "outputSchema" in listed["structured"] and "outputSchema" not in listed["unlisted"]
        result = (await full.call("structured")).result
        assert result["structuredContent"] == whole
        assert "structuredContent" not in check_shown(text_of(result), large.structured())["where"]
        assert "structuredContent" not in (await full.call("unlisted")).result
    async with HttpClient(f"{hub.url}/p/search", ALICE) as client:
        search = Peer(client, MODERN)
        assert await search.names() == ["find_tools", "read_tool", "run_tool", "read_result", "hub_calls"]
        result = (await search.call("run_tool", {"name": "structured"})).result
        assert "structuredContent" not in result
        notice = check_shown(text_of(result), large.structured())
        assert digest(await everything(search, notice["id"])) == digest(large.structured())


async def test_a_resource_is_cut_and_read_on_like_a_result(peer: Peer) -> None:
    (shown,) = (await peer.request("resources/read", {"uri": large.LOG})).result["contents"]
    (whole,) = large.contents()["contents"]
    assert {**shown, "text": ""} == {**whole, "text": ""}
    notice = check_shown(shown["text"], whole["text"])
    start = int(notice["where"].removeprefix("offset="))
    page = (await peer.call("read_result", {"id": notice["id"], "offset": start})).result["content"][0]["text"]
    assert whole["text"].encode()[start:].startswith(page.encode())
    assert LIMIT * 0.75 <= estimate(page) <= LIMIT


# -- who may read on, and for how long


async def test_what_is_somebody_else_s_or_has_expired_is_as_unknown_as_what_never_was(
    hub: Hub, alice: Peer, root: Path
) -> None:
    id_ = check_shown(text_of((await alice.call("fails")).result), text_of(large.result_of("fails")))["id"]
    async with connected(hub, HANDSHAKE, BOB) as bob, RestClient(hub, BOB) as rest:
        never = await refused(bob, "raaaaaaaaaaaa")
        assert await refused(bob, id_) == never == await refused(alice, "raaaaaaaaaaaa")
        answer = (await rest.call("read_result", {"id": id_})).json()["result"]
        assert text_of(answer).replace(id_, "ID") == never
    assert not (await alice.call("read_result", {"id": id_})).result["isError"]
    for file in kept(root):
        os.utime(file, (1, 1))  # as if its time had come
    assert await refused(alice, id_) == never
    assert (
        text_of((await alice.call("fails")).result)
        and not (await alice.call("read_result", {"id": id_})).result["isError"]
    ), "called again it is there again"


async def refused(peer: Peer, id_: str) -> str:
    for how in ({}, {"offset": 10**12}, {"grep": "x"}, {"path": "$"}):
        result = (await peer.call("read_result", {"id": id_, **how})).result
        assert result["isError"]
    return text_of(result).replace(id_, "ID")


async def test_handles_outlive_the_hub_and_lists_are_the_same_bytes_again(tmp_path: Path) -> None:
    whole = text_of(large.result_of("fails"))
    async with http_hub(config(), tmp_path, relays_all=False) as first, connected(first, HANDSHAKE) as peer:
        listed = (await peer.request("tools/list")).result
        shown = text_of((await peer.call("fails")).result)
    async with http_hub(config(), tmp_path, relays_all=False) as second, connected(second, HANDSHAKE) as peer:
        assert json.dumps((await peer.request("tools/list")).result) == json.dumps(listed)
        assert digest(await everything(peer, check_shown(shown, whole)["id"])) == digest(whole)
        assert text_of((await peer.call("fails")).result) == shown, "and the same result has the same one"


# -- the same on every way


async def test_replays_and_tasks_bring_the_same_bytes_as_the_first_delivery(hub: Hub, tmp_path: Path) -> None:
    first = (tmp_path / "first", tmp_path / "second")
    async with HttpClient(hub.url, ALICE) as client:
        await client.initialize()
        await client.request("tools/list")
        texts = [text_of((await Peer(client, HANDSHAKE).call("fails")).result)]
        params = {"name": "fails", "arguments": {"gate": str(first[0])}, "_meta": {"progressToken": 1}}
        async with client.stream(client.message("tools/call", params)) as stream:
            last = (await stream.next_event()).id
        first[0].touch()
        for _ in range(2):  # resumed, and replayed
            async with client.listen(last) as stream:
                answer = await stream.wait_for(lambda message: "result" in message)
                texts.append(text_of(answer["result"]))
        takes: Message = {"extensions": {PREFIX + "tasks": {}}}
        params = modern({"name": "fails", "arguments": {"gate": str(first[1])}}, capabilities=takes)
        task = (await client.request("tools/call", params)).last["result"]
        assert task["resultType"] == "task"
        first[1].touch()
        async with RestClient(hub, ALICE) as rest:
            seen = await rest.until(task["taskId"], "tool_error")
        texts.append(text_of(seen["result"]))
        for _ in range(2):
            got = await client.request("tasks/get", modern({"taskId": task["taskId"]}, capabilities=takes))
            texts.append(text_of(got.last["result"]["result"]))
    assert len(texts) == 6 and set(texts) == {texts[0]}
    check_shown(texts[0], text_of(large.result_of("fails")))


async def test_who_is_answered_before_the_end_gets_the_cut_result_too(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    clients = {"claude-desktop": {"soft_deadline": "300ms"}}
    async with stdio_session(config(clients=clients), tmp_path, client="claude-desktop") as client:
        peer = Peer(client, HANDSHAKE)
        assert "hub_calls" in await peer.names()
        result = (await peer.call("structured", {"gate": str(gate)})).result
        gate.touch()
        while STREAMS in (meta := result.get("_meta", {})) and meta[STREAMS]["status"] == "working":
            how = {"id": meta[STREAMS]["stream"], "after": int(meta[STREAMS]["cursor"])}
            result = (await peer.call("hub_calls", how)).result
        notice = check_shown(text_of(result), large.structured())
        assert "structuredContent" not in result, "it is not listed to this client"
        assert digest(await everything(peer, notice["id"])) == digest(large.structured())
        assert await client.close() == 0


# -- who gets them whole


async def test_rest_clients_get_whole_results(hub: Hub) -> None:
    async with RestClient(hub, ALICE) as rest:
        for tool in (*CUT, "structured"):
            result, whole = (await rest.call(tool)).json()["result"], large.result_of(tool)
            assert text_of(result) == text_of(whole)
            assert {"isError": False, **others_of(result)} == {"isError": False, **others_of(whole)}
        listed = (await rest.ask("GET", "/tools")).json()["tools"]
        assert [one["name"] for one in listed] == list(large.TOOLS)


@pytest.mark.parametrize(
    ("profile", "name", "own"), [("/p/whole", "claude-code", ["hub_calls"]), ("", "mcp-hub-client", [])]
)
async def test_without_a_limit_and_for_other_hubs_results_pass_whole(
    hub: Hub, profile: str, name: str, own: list[str]
) -> None:
    async with HttpClient(hub.url + profile, ALICE) as client:
        await client.initialize(name=name)
        peer = Peer(client, HANDSHAKE)
        assert await peer.names() == [*own, *large.TOOLS]
        for tool in ("log", "unlisted"):
            result = (await peer.call(tool)).result
            assert text_of(result) == text_of(large.result_of(tool))
            assert others_of(result) == others_of(large.result_of(tool))
        (read,) = (await peer.request("resources/read", {"uri": large.LOG})).result["contents"]
        assert read == large.contents()["contents"][0]
