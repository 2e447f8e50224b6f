"""A tool that the settings hide is as one that never was: on every front, asked for in any way, the same answers.

Two hubs have the same settings. The server of the one offers tools that these hide, that of the other has none of them.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.sse_client import SseClient
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, http_hub, stdio_hub
from tests.upstreams.launch import entry, received
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio


def tool(name: str, description: str, **members: Any) -> Message:
    schema = {"type": "object", "properties": {"note": {"type": "string", "description": f"A note to {name}"}}}
    return {"name": name, "description": description, "inputSchema": schema, **members}


READS = {"readOnlyHint": True}
KEPT = {"annotations": {"readOnlyHint": False, "destructiveHint": False}}
SHOWN = [
    tool("get_note", "Read one note of the notebook.", annotations=READS),
    tool("list_notes", "List all notes of the notebook, newest first.", annotations=READS),
    tool("save_note", "Store a note in the notebook.", **KEPT),
]
HIDDEN = {  # each for one reason alone
    "denied by its server": tool("secret_zebra", "Paint the zebra in secret.", annotations=READS),
    "hidden by itself": tool("move_walrus", "Move the walrus to the notebook.", **KEPT),
    "denied by its tag": tool("get_giraffe", "Fetch the giraffe, for people in charge.", tags=["admin"], **KEPT),
    "denied by its hint": tool("drop_notes", "Burn the whole notebook with a flamingo.", annotations={}),
    "denied by the profile": tool("send_pelican", "Mail the pelican to a friend.", **KEPT),
    "not allowed": tool("other_lemur", "Count the lemur of the notebook.", annotations=READS),
    # would be found beside its double, as `also`
    "near duplicate": tool("get_note_v2", "Read one note of the notebook.", annotations=READS, tags=["admin"]),
}
BY_PROFILE = ("denied by the profile", "not allowed")
NOTES = {
    "tools": {"deny": ["secret_*", {"tag": "adm*"}, {"destructiveHint": True}]},
    "per_tool": {"*walrus": {"hide": True}},
}
PROFILE = {"tools": {"allow": ["notes_[!o]*"], "deny": ["*_pelican"]}}
_OWN = re.compile(r'"_meta": {"dev.mcp-hub/streams": {[^{}]*}}, |"id": \d+|\bst_[0-9A-Z]+')
"""What each call of a script has of its own, and the stream of one that took long."""


def config(root: Path, tools: list[Message], **hub: Any) -> str:
    (root / "tools.json").write_text(json.dumps(tools))
    own = {**entry(name="notes", tools_json=root / "tools.json", journal=root / "journal"), **NOTES}
    settings = {"expose": "search", "prefix": "always", "pinned": ["notes_list_notes", "*_zebra", "*_pelican"], **hub}
    return json.dumps({"hub": settings, "servers": {"notes": own}, "profiles": {"small": PROFILE}})


def mixed() -> list[Message]:
    """What is hidden comes first, in between and last."""
    hidden = list(HIDDEN.values())
    return [*hidden[:2], SHOWN[0], hidden[2], SHOWN[1], *hidden[3:6], SHOWN[2], *hidden[6:]]


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, Hub]]:
    """Over HTTP: the one that hides, and the one that has nothing to hide."""
    async with AsyncExitStack() as stack:
        roots = [tmp_path_factory.mktemp("hides"), tmp_path_factory.mktemp("has_not")]
        started = [
            await stack.enter_async_context(http_hub(config(root, tools), root, relays_all=False))
            for root, tools in zip(roots, (mixed(), SHOWN), strict=True)
        ]
        for running in started:
            await running.wait_stderr("upstream_ready")  # instructions name the servers that are up
        yield started[0], started[1]
        assert called(roots[0]) <= {"get_note", *(HIDDEN[how]["name"] for how in BY_PROFILE)}


def called(root: Path) -> set[str]:
    """The tools that the server was asked to run."""
    return {call["params"]["name"] for call in received(root / "journal", "tools/call")}


def names_of(hidden: Message) -> Iterator[str]:
    """All that somebody who knows of the tool may try."""
    own = hidden["name"]
    exported = f"notes_{own}"
    yield from (exported, own, exported.upper(), own.title(), f"{exported} ")


def requests(*, is_brief: bool = False) -> Iterator[tuple[str, Message]]:
    """Every way to ask for what is hidden; in brief the ways that a name takes."""
    yield "tools/list", {}
    yield "tools/call", call("find_tools", query="notebook", limit=50)
    for hidden in HIDDEN.values():
        for name in names_of(hidden):
            yield "tools/call", {"name": name, "arguments": {"note": "n"}}
            yield "tools/call", call("run_tool", name=name, arguments={"note": "n"})
        yield "tools/call", call("find_tools", query=f"notes_{hidden['name']}")
        yield from () if is_brief else searches(hidden)
    yield "tools/call", call("find_tools", query="what is there to do", detail="full", limit=50, server="notes")
    yield "tools/call", call("find_tools", query="x", server="nowhere")


def searches(hidden: Message) -> Iterator[tuple[str, Message]]:
    yield "tools/call", call("find_tools", query=hidden["name"])
    for detail in ("brief", "full"):
        yield "tools/call", call("find_tools", query=hidden["description"], detail=detail)
    yield "tools/call", call("find_tools", query=hidden["name"].partition("_")[2], server="notes")
    typo = hidden["name"][:-1] + "q"  # what is near is named
    yield "tools/call", {"name": f"notes_{typo}", "arguments": {}}
    yield "tools/call", call("run_tool", name=f"notes_{typo}")


def call(own_tool: str, **arguments: Any) -> Message:
    return {"name": own_tool, "arguments": arguments}


WORDS = [hidden["name"].partition("_")[2] for hidden in HIDDEN.values() if hidden["name"] != "drop_notes"] + [
    "flamingo"
]


def check(asked: str, hides: Any, has_not: Any) -> None:
    """That the one answer is the other one, and says no more of what is hidden than was asked."""
    assert hides == has_not, asked
    text = json.dumps(hides).lower()
    assert not [word for word in WORDS if word in text and word not in asked.lower()], (asked, text)


# -- MCP


@asynccontextmanager
async def stdio_pair(root: Path, *args: str, **hub: Any) -> AsyncIterator[tuple[StdioClient, StdioClient]]:
    for name in ("hides", "has_not"):
        (root / name).mkdir()
    async with (
        stdio_hub(config(root / "hides", mixed(), **hub), root / "hides", *args, client=None) as hides,
        stdio_hub(config(root / "has_not", SHOWN, **hub), root / "has_not", *args, client=None) as has_not,
    ):
        for client in (hides, has_not):
            await client.initialize()
        yield hides, has_not


async def compare(hides: Peer, has_not: Peer, *, is_brief: bool) -> None:
    for id_, (method, params) in enumerate(requests(is_brief=is_brief)):
        ours, theirs = [await peer.request(method, params, id=f"q{id_}") for peer in (hides, has_not)]
        check(json.dumps(params), ours.answer, theirs.answer)
        assert ours.status == theirs.status
    assert (await hides.call("notes_get_note", {"note": "n"})).result == (
        await has_not.call("notes_get_note", {"note": "n"})
    ).result


async def test_over_stdio_in_both_eras(tmp_path: Path) -> None:
    async with stdio_pair(tmp_path, "--profile", "small") as (hides, has_not):
        for era in ERAS:
            await compare(Peer(hides, era), Peer(has_not, era), is_brief=era == MODERN)
    assert called(tmp_path / "hides") == {"get_note"}


def scripts() -> Iterator[str]:
    """Every way to a name in a script; by `exec`, too, where no check comes before."""
    for hidden in HIDDEN.values():
        for name in (f"notes_{hidden['name']}", hidden["name"]):
            yield f"await {name}(note='n')"
            yield f"try:\n    r = {name}\nexcept NameError as error:\n    r = str(error)\nr"
            yield f"# {name}\nexec({name + '()'!r})"
            yield f"getattr(notes_get_note, {name!r}, 0)"
            for own in ("run_tool", "read_tool", "run_code", "find_tools"):
                yield f"await {own}(name={name!r})"
        yield f"await notes_{hidden['name'][:-1]}q(note='n')"


@pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")
async def test_by_scripts(tmp_path: Path) -> None:
    async with stdio_pair(tmp_path, "--profile", "small", code="all") as (hides, has_not):
        peers = [Peer(client, HANDSHAKE) for client in (hides, has_not)]
        assert "run_code" in await peers[0].names()
        for code in scripts():
            ours, theirs = [(await peer.call("run_code", {"code": code})).answer for peer in peers]
            check(code, *[_OWN.sub("", json.dumps(said)) for said in (ours, theirs)])
        run = await peers[0].call("run_code", {"code": "await notes_get_note(note='n')"})
        assert not run.result.get("isError"), run.result
    assert called(tmp_path / "hides") == {"get_note"}


@pytest.mark.parametrize("era", ERAS)
async def test_over_http(hubs: tuple[Hub, Hub], era: str) -> None:
    async with HttpClient(f"{hubs[0].url}/p/small") as hides, HttpClient(f"{hubs[1].url}/p/small") as has_not:
        if era == HANDSHAKE:
            said = [(await client.initialize()).last["result"] for client in (hides, has_not)]
            check("", *said)
        await compare(Peer(hides, era), Peer(has_not, era), is_brief=era == HANDSHAKE)


async def test_over_the_old_sse_transport(hubs: tuple[Hub, Hub]) -> None:
    async with (
        SseClient.connect(f"{hubs[0].url}/p/small") as hides,
        SseClient.connect(f"{hubs[1].url}/p/small") as has_not,
    ):
        for client in (hides, has_not):
            await client.initialize()
        for method, params in requests(is_brief=True):
            check(json.dumps(params), await hides.request(method, params), await has_not.request(method, params))


async def test_without_a_profile_the_server_s_own_rules_hold(hubs: tuple[Hub, Hub]) -> None:
    """And only they: what the profile hides is there."""
    async with HttpClient(hubs[0].url) as client:
        await client.initialize()
        peer = Peer(client, HANDSHAKE)
        assert await peer.names() == [
            "find_tools",
            "read_tool",
            "run_tool",
            "read_result",
            "hub_calls",
            "notes_list_notes",
            "notes_send_pelican",
        ]
        for how, hidden in HIDDEN.items():
            is_there = how in BY_PROFILE
            found = (await peer.call("find_tools", {"query": hidden["description"]})).text
            assert (f"notes_{hidden['name']}(" in found) is is_there, how
            exact = (await peer.call("find_tools", {"query": f"notes_{hidden['name']}"})).text
            assert exact.startswith("{") is is_there, how
            run = (await peer.call("run_tool", {"name": f"notes_{hidden['name']}"})).result
            assert bool(run.get("isError")) is not is_there, how


@pytest.mark.parametrize("mode", ["full", "names", "auto"])
async def test_in_every_mode(hubs: tuple[Hub, Hub], mode: str) -> None:
    """The lists, with the names in a description, as REST has them."""
    lists = []
    for hub in hubs:
        async with RestClient(hub) as rest:
            lists.append((await rest.ask("GET", f"/tools?profile=small&expose={mode}")).text)
    check("", *lists)
    assert "get_note" in lists[0]


# -- REST


async def test_over_rest(hubs: tuple[Hub, Hub]) -> None:
    async with RestClient(hubs[0]) as hides, RestClient(hubs[1]) as has_not:
        for hidden in HIDDEN.values():
            for name in names_of(hidden):
                for body in ({"arguments": {"note": "n"}}, {"tools": [name]}):
                    path = f"/tools/{name.replace(' ', '%20')}/call?profile=small"
                    ours, theirs = [await rest.ask("POST", path, body) for rest in (hides, has_not)]
                    assert (ours.status_code, theirs.status_code) == (404, 404)
                    check(name, ours.json(), theirs.json())
                    assert ours.json()["code"] == "unknown_tool"
                for own in ("run_tool", "find_tools"):
                    arguments = {"name": name} if own == "run_tool" else {"query": name}
                    path = f"/tools/{own}/call?profile=small"
                    answers = [
                        (await rest.ask("POST", path, {"arguments": arguments})).json() for rest in (hides, has_not)
                    ]
                    check(name, *[answer["result"] for answer in answers])
        assert (await hides.ask("POST", "/tools/notes_get_note/call?profile=small", {})).status_code == 200
