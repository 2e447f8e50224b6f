"""Scripts of two callers with tokens and profiles of their own: to the one, the other's runs, their calls, output,
results and errors are as unknown as those that never were, and the other's tools as names that no tool has.

The page of a run at the dashboard reads the routes of REST that are asked here.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.bad_input import ALICE, BOB
from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.test_kept_wholes import NEVER, Kept, heard, heard_over_rest, resumed
from tests.e2e.three_hubs import STREAMS
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.upstreams.child import WAIT, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed"),
]

NARROW = "alice-narrow-token"
SECRET = "the pelican of Alice"
WORDS = ("pelican", "vault", "vlt")
TOOLS = f"""
from pathlib import Path

import anyio

from mcp_hub import Registry

registry = Registry()
vault = Registry()
HERE = Path(__file__).parent


@registry.tool(annotations={{"readOnlyHint": True}})
async def gate(name: str) -> str:
    with (HERE / "gates").open("a") as file:
        file.write(name + "\\n")
    while not (HERE / f"{{name}}.open").exists():
        await anyio.sleep(0.01)
    return f"passed {{name}}"


@registry.tool
def note(text: str) -> str:
    with (HERE / "notes").open("a") as file:
        file.write(text + "\\n")
    return f"noted {{text}}"


@vault.tool(annotations={{"readOnlyHint": True}})
def read_pelican() -> str:
    return "{SECRET}"


@vault.tool
def pay_pelican(amount: int) -> str:
    with (HERE / "payments").open("a") as file:
        file.write(f"{{amount}}\\n")
    return "paid"
"""
RUNS = {  # of Alice; how they end
    "working": "print(await vlt_read_pelican())\nawait common_gate(name='held')",
    "completed": "value = await vlt_read_pelican()\nprint(value)\n(value + '. ') * 5000",
    "tool_error": "print(await vlt_read_pelican())\nraise ValueError('no pelican')",
    "failed": "print(await vlt_read_pelican())\nasync def f():\n    while True:\n        pass\nawait f()",
}


class Site:
    """A hub, and the files of its tools."""

    def __init__(self, hub: Hub, root: Path) -> None:
        self.hub = hub
        self._root = root

    def open_gate(self, name: str) -> None:
        (self._root / f"{name}.open").touch()

    def close_gate(self, name: str) -> None:
        (self._root / f"{name}.open").unlink(missing_ok=True)

    def lines(self, file: str) -> list[str]:
        path = self._root / file
        return path.read_text().splitlines() if path.exists() else []

    async def at_gate(self, name: str, count: int = 1) -> None:
        await until(lambda: self.lines("gates").count(name) >= count)


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    root = tmp_path_factory.mktemp("foreign")
    (root / "guarded_tools.py").write_text(TOOLS)
    servers = {"common": {"local": "guarded_tools:registry"}, "vlt": {"local": "guarded_tools:vault"}}
    tokens = [
        {"token": ALICE, "principal": "alice", "profile": "wide"},
        {"token": NARROW, "principal": "alice", "profile": "small"},
        {"token": BOB, "principal": "bob", "profile": "small"},
    ]
    settings = {
        "hub": {
            "code": "all",
            "prefix": "always",
            "tokens": tokens,
            "code_limits": {"seconds": 0.5},
            "history": {"arguments": "full"},
        },
        "servers": servers,
        "profiles": {"wide": {"servers": ["common", "vlt"]}, "small": {"servers": ["common"]}},
    }
    async with http_hub(json.dumps(settings), root, relays_all=False) as hub:
        async with RestClient(hub, ALICE) as alice:
            await alice.settled()
        yield Site(hub, root)


async def begun(rest: RestClient, code: str, **headers: str) -> str:
    answer = await rest.ask("POST", "/code", {"code": code}, prefer="wait=0", **headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["stream"])


async def cut_result(site: Site) -> Kept:
    """A run of Alice over MCP, whose result is so long that it is kept for `read_result`."""
    async with connected(site.hub, MODERN, ALICE) as alice:
        await alice.names()
        seen = await alice.call("run_code", {"code": RUNS["completed"], "again": True})
        (whole,) = set(re.findall(r"\br[0-9a-z]{12}\b", json.dumps(seen.result)))
        return Kept(whole, seen.result["_meta"][STREAMS]["stream"])


@asynccontextmanager
async def run_of_alice(site: Site, status: str) -> AsyncIterator[tuple[Kept, str]]:
    """A run in this state, what is kept of its result, and the id of a call in it."""
    site.close_gate("held")
    async with RestClient(site.hub, ALICE) as alice:
        is_kept = status == "completed"
        run = await cut_result(site) if is_kept else Kept(NEVER.whole, await begun(alice, RUNS[status]))
        await alice.until(run.stream, status)
        events, page = f"/streams/{run.stream}/events?after=0&wait=0.1", ""
        with anyio.fail_after(WAIT):
            while SECRET not in page or '"tool-call"' not in page:  # a script that reads is stored now and then
                page = (await alice.ask("GET", events)).text
        yield run, re.findall(r'"call":"(\w+)"', page)[0]
        if status == "working":
            assert (await alice.ask("GET", f"/streams/{run.stream}")).json()["status"] == "working"
            site.open_gate("held")
            ended = await alice.until(run.stream, "completed", "cancelled", "failed")
            assert (ended["status"], ended["result"]["content"][-1]["text"]) == ("completed", "passed held")


@pytest.mark.first(2)
@pytest.mark.parametrize("status", RUNS)
async def test_run_of_another_principal_is_as_one_that_never_was(site: Site, status: str) -> None:
    async with run_of_alice(site, status) as (run, inner):
        for one in (run, Kept(NEVER.whole, inner)):
            async with RestClient(site.hub, BOB) as bob:
                answers = await heard_over_rest(bob, one)
                assert answers == await heard_over_rest(bob, NEVER) and not said(answers)
            for era in ERAS:
                async with connected(site.hub, era, BOB) as peer:
                    await peer.names()
                    over_mcp = [*await heard(peer, one), *await streamed(peer, one)]
                    never = [*await heard(peer, NEVER), *await streamed(peer, NEVER)]
                    assert over_mcp == never and not said(over_mcp)
        async with RestClient(site.hub, ALICE) as alice:
            owned = [await alice.ask("GET", f"/streams/{run.stream}/events?after={after}&wait=0") for after in (0, 1)]
            assert all(answer.status_code == 200 for answer in owned), "the same questions of its owner"
            assert SECRET in owned[0].text
            if status == "completed":
                over_rest = await heard_over_rest(alice, run)
                assert sum(SECRET in text for _, text in over_rest) > 5, over_rest


async def streamed(peer: Peer, one: Kept) -> list[str]:
    """The answers to a client that reads the stream on, by the hub's extension and over HTTP."""
    asked = [await peer.request(f"{STREAMS}.read", {"stream": one.stream, "cursor": str(after)}) for after in (0, 1)]
    answers = [json.dumps({**seen.answer, "id": 0}) for seen in asked]
    assert isinstance(peer.wire, HttpClient)
    if peer.era == HANDSHAKE:
        answers.append(await resumed(peer.wire, f"{one.stream}:1"))
        await peer.wire.notify("notifications/cancelled", {"requestId": one.stream})
    return [answer.replace(one.stream, "STREAM") for answer in answers]


def said(answers: object) -> list[str]:
    """Words of Alice in what Bob has heard."""
    text = json.dumps(answers).lower()
    return [word for word in WORDS if word in text]


async def test_lists_and_history_of_another_principal_have_nothing_of_a_run(site: Site) -> None:
    async with run_of_alice(site, "completed") as (run, inner), RestClient(site.hub, BOB) as bob:
        lists = ("/streams", "/history?details=1", "/history/figures", "/tools", "/tokens", "/servers", "/resources")
        for path in (*lists, "/servers?verbose=1", "/tools?expose=names", "/code"):
            text = (await bob.ask("GET", path)).text
            assert not said(text) and run.stream not in text and inner not in text, text
        assert not said((await bob.call("hub_calls")).text)
        for path in (
            "/history?server=vlt",
            "/history?tool=vlt_read_pelican",
            "/search?q=read%20pelican",
            "/servers/vlt",
        ):
            answers = [await bob.ask("GET", each) for each in (path, swapped(path))]
            assert swapped(answers[0].text) == answers[1].text and answers[0].status_code == answers[1].status_code
        async with RestClient(site.hub, ALICE) as alice:
            assert SECRET in (await alice.ask("GET", "/history?details=1")).text
            assert run.stream in (await alice.ask("GET", "/streams")).text


# -- the same text


async def test_same_text_of_two_principals_is_two_runs(site: Site) -> None:
    code = "first = await common_gate(name='twice')\nf'{first}, {await common_note(text=first)}'"
    async with RestClient(site.hub, ALICE) as alice, RestClient(site.hub, BOB) as bob:
        runs = [await begun(rest, code, idempotency_key="the-same") for rest in (alice, bob)]
        await site.at_gate("twice", 2)
        joined = await begun(alice, code)
        assert len({*runs, joined}) == 3
        assert (await bob.ask("DELETE", f"/streams/{runs[1]}")).status_code == 202
        assert (await bob.until(runs[1], "cancelled", "completed"))["status"] == "cancelled"
        site.open_gate("twice")
        for stream in (runs[0], joined):
            ended = await alice.until(stream, "completed", "cancelled", "failed")
            assert ended["result"]["content"][-1]["text"] == "passed twice, noted passed twice", ended
        assert (site.lines("gates").count("twice"), site.lines("notes").count("passed twice")) == (2, 1), (
            "Alice's second is the first one, and Bob's is not"
        )
        late = (await bob.ask("POST", "/code", {"code": code})).json()
        assert late["result"]["content"][-1]["text"] == "passed twice, noted passed twice"
        assert site.lines("notes").count("passed twice") == 2, "an ending that Alice may have again is not Bob's"


@pytest.mark.parametrize("token", [BOB, NARROW])
async def test_same_text_in_another_profile_is_checked_by_its_own_tools(site: Site, token: str) -> None:
    """Although the run is there, and its result."""
    async with run_of_alice(site, "working"), RestClient(site.hub, token) as other:
        for status in ("working", "completed"):
            hidden, never = [
                await other.ask("POST", "/code", {"code": code})
                for code in (RUNS[status], RUNS[status].replace("vlt_read_pelican", "owl_read_toucan"))
            ]
            assert hidden.status_code == never.status_code == 200 and hidden.json()["result"]["isError"]
            assert swapped(hidden.json()["result"]) == never.json()["result"]
            assert SECRET not in hidden.text


# -- hidden tools


OTHERS = {"pelican": "toucan", "vlt": "owl", "PELICAN": "TOUCAN", "VLT": "OWL", "\uff56lt": "\uff4fwl"}


def swapped(answer: object) -> Any:
    """With another word in the place of each that only what is hidden has."""
    text = json.dumps(answer, ensure_ascii=False)
    for word, other in OTHERS.items():
        text = text.replace(word, other)
    return json.loads(text)


NAMES = ("vlt_read_pelican", "read_pelican", "VLT_READ_PELICAN", "\uff56lt_read_pelican", "vlt_pay_pelican")


PARTS = 4
"""Each has every way of `spelled`, but not of every name."""


def spelled() -> Iterator[str]:
    """Scripts that name a hidden tool in every way, of which there are 21."""
    for name in NAMES:
        yield f"await {name}()"
        yield f"await {name}(amount=1)"
        yield f"tool = {name}\nawait tool()"
        yield f"try:\n    r = await {name}()\nexcept NameError as error:\n    r = str(error)\nr"
        yield f"# {name}\nexec('{name}()')"
        yield f"eval('{name}')"
        yield f"globals()['{name}']"
        yield f"getattr(common_note, '{name}', 0)"
        yield f"getattr(common_note, '__globals__')['{name}']"
        yield f"import {name}"
        yield f"from vlt import {name}\nawait {name}()"
        yield f"await vlt.{name}()"
        for own in ("run_tool", "read_tool", "find_tools", "run_code", "hub_calls", "read_result"):
            yield f"await {own}(name='{name}', query='{name}', code='await {name}()', id='{name}', arguments={{}})"
        yield f"class A:\n    def __getattr__(self, name):\n        return {name}\nawait A().x()"
        yield f"names = ['{name}']\nawait (lambda f: f())(__builtins__[names[0]])"
        yield f"async def {name}(): return 1\nr = await {name}()\ndel {name}\nawait {name}()"


@pytest.mark.first(1)
@pytest.mark.parametrize("part", range(PARTS))
async def test_hidden_tool_is_no_name_in_a_script_however_it_is_spelled(site: Site, part: int) -> None:
    async with RestClient(site.hub, BOB) as rest, connected(site.hub, HANDSHAKE, BOB) as peer:
        for code in islice(spelled(), part, None, PARTS):
            never = str(swapped(code))
            answers = [await rest.ask("POST", "/code", {"code": each, "again": True}) for each in (code, never)]
            results = [answer.json().get("result") or answer.json() for answer in answers]
            assert swapped(bare(results[0])) == bare(results[1]), code
            assert SECRET not in answers[0].text, code
        for code in ("await vlt_read_pelican()", "eval('vlt_read_pelican')", "await run_tool(name='vlt_read_pelican')"):
            over_mcp = [(await peer.call("run_code", {"code": each})).answer for each in (code, str(swapped(code)))]
            assert swapped(bare(over_mcp[0])) == bare(over_mcp[1]), code
    assert not site.lines("payments")


def bare(answer: Any) -> Any:
    """Without what each call has of its own, and the stream of one that took long."""
    text = re.sub(r'"_meta": {"dev.mcp-hub/streams": {[^{}]*}}, ', "", json.dumps(answer))
    return json.loads(re.sub(r'"id": \d+|"stream": "st_\w+"|st_[0-9A-Z]{26}', '"x": 0', text))


@pytest.mark.parametrize("era", ERAS)
async def test_find_tools_has_no_tool_of_another_profile(site: Site, era: str) -> None:
    queries = ("vlt_read_pelican", "read pelican", "pay the pelican", "vlt")
    async with connected(site.hub, era, BOB) as bob, connected(site.hub, era, ALICE) as alice:
        assert era == MODERN or "run_code" in await bob.names()
        for query in queries:
            for more in ({}, {"detail": "full"}, {"server": "vlt"}, {"limit": 50}):
                answers = [
                    (await bob.call("find_tools", {"query": each, **more})).answer for each in (query, swapped(query))
                ]
                asked = [
                    json.loads(json.dumps(answer).replace(query, "Q").replace(swapped(query), "Q"))
                    for answer in answers
                ]
                if more.get("server"):  # no server of this name is there
                    assert "vlt_" not in json.dumps(answers[0]).replace(query, "")
                else:
                    assert swapped(bare(asked[0])) == bare(asked[1]), (query, more)
        assert "async def vlt_read_pelican" in (await alice.call("find_tools", {"query": "read pelican"})).text


async def test_errors_of_a_run_name_what_its_caller_may_see_alone(site: Site) -> None:
    """A run that is ended by a limit has the list of its calls, for its caller."""
    async with RestClient(site.hub, ALICE) as alice:
        error = (await alice.ask("POST", "/code", {"code": RUNS["failed"], "again": True})).json()
        assert "vlt_read_pelican" in json.dumps(error) and "hub.code_limits.seconds" in json.dumps(error), error
    code = "await common_note(text='x')\nawait common_nate(text='y')"
    async with RestClient(site.hub, BOB) as bob:
        answer = (await bob.ask("POST", "/code", {"code": code})).text
        assert "common_note" in answer and not said(answer)
        limited = "await common_note(text='x')\nasync def f():\n    while True:\n        pass\nawait f()"
        error = (await bob.ask("POST", "/code", {"code": limited})).json()
        assert "common_note" in json.dumps(error) and not said(error)
