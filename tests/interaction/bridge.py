"""What happens to a server's question, for each era of client and server and each front: measured, as a table.

`python -m tests.interaction.bridge` writes `docs/bridge.md`; a test holds the file equal to what happens.
"""

import itertools
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from tests.e2e.answers import Answers, error, form, never, result
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import ERAS, FRONTS, HANDSHAKE, MODERN, Peer, Seen, connected, http_hub, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv, events, received, servers_yaml
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

DOCUMENT = Path(__file__).parents[2] / "docs" / "bridge.md"
UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}
ACCEPT = {"action": "accept", "content": {"answer": "yes"}}
SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "hm"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///r"}]}
ANSWERS: dict[str, Any] = {
    "elicitation/create": form(answer="yes"),
    "sampling/createMessage": result(SAMPLE),
    "roots/list": result(ROOTS),
}
GIVEN: dict[str, Message] = {"form": ACCEPT, "url": ACCEPT, "sampling": SAMPLE, "roots": ROOTS}
_nonces = itertools.count(1)


@dataclass(frozen=True)
class Place:
    """One client at one hub, and the server that its case is about."""

    open: Callable[[Answers | None], Any]
    era: str
    upstream: str
    journal: Path

    @property
    def is_handshake_server(self) -> bool:
        return UPSTREAMS[self.upstream] == HANDSHAKE

    def tool(self, name: str) -> str:
        return f"{self.upstream}_{name}"


Case = Callable[[Place], Awaitable[str]]
Found = dict[tuple[str, str, str], str]
"""What happened, by case, client era and server era."""


def _how(seen: Seen) -> str:
    """How the client was asked, from what was on its wire."""
    asked = [message["method"] for message in seen.before if "id" in message and "method" in message]
    if asked:
        return "asked by " + ", ".join(f"`{method}`" for method in asked)
    rounds = [sorted(one["method"] for one in found.get("inputRequests", {}).values()) for found in seen.rounds]
    return ", ".join(f"`input_required` with {', '.join(f'`{method}`' for method in found)}" for found in rounds)


def _arrived(seen: Seen, expected: dict[str, Message]) -> str:
    if "error" in seen.answer:
        return f"error {seen.error['code']}: {seen.error['message']}"
    answers = seen.result["structuredContent"]["answers"]
    wanted = {key: {"result": value} for key, value in expected.items()}
    if answers == wanted:
        return "the answer arrived as given" if len(wanted) == 1 else "both answers arrived as given"
    return f"arrived: {answers}"


def asking(tool: str, **expected: str) -> Case:
    """A case that asks and is answered; `expected` maps the server's keys to the kind of answer."""

    async def case(place: Place) -> str:
        kinds = {"kinds": list(expected.values())} if len(expected) > 1 else {}
        async with place.open(Answers(ANSWERS)) as peer:
            seen = await peer.call(place.tool(tool), {"nonce": next(_nonces), **kinds})
        how = _how(seen)
        if tool == "ask_both" and len(seen.rounds) == 2:  # two requests of a handshake server may come apart
            how = how.replace(", `input_required` with", ",")
        return f"{how}; {_arrived(seen, {key: GIVEN[kind] for key, kind in expected.items()})}"

    return case


async def refused_by_user(place: Place) -> str:
    async with place.open(Answers({"elicitation/create": form("decline")})) as peer:
        seen = await peer.call(place.tool("ask_form"), {"nonce": next(_nonces)})
    return f"{_how(seen)}; {_arrived(seen, {'form': {'action': 'decline'}})}"


async def answered_by_error(place: Place) -> str:
    """A modern client has no way to do this."""
    if place.era == MODERN:
        return "–"
    async with place.open(Answers({"sampling/createMessage": error(-1, "User rejected")})) as peer:
        seen = await peer.call(place.tool("ask_sampling"), {"nonce": next(_nonces)})
    if "error" in seen.answer:
        told = seen.error["data"]["error"]
        return f"{_how(seen)}; the call fails with {seen.error['code']}, the client's error {told['code']} in its data"
    told = seen.result["structuredContent"]["answers"]["sampling"]["error"]
    return f"{_how(seen)}; the server got error {told['code']}, {told['message']}; the call continues"


async def cancelled_later(place: Place) -> str:
    """Asked, answered, at work: then the client cancels in its era's way."""
    nonce = f"c{next(_nonces)}"
    before = _answers_seen(place, nonce)
    body: Message = {"name": place.tool("ask_then_wait"), "arguments": {"nonce": nonce, "seconds": 60}}
    async with place.open(Answers(ANSWERS)) as peer:
        if place.era == MODERN:
            peer.answers, capable = None, peer.answers
            first = (await peer.request("tools/call", body, **_declared(capable))).result
            responses = dict.fromkeys(first["inputRequests"], ACCEPT)
            body |= {"inputResponses": responses, "requestState": first["requestState"]}
            body["_meta"] = _declared(capable)
        async with anyio.create_task_group() as tasks:
            leg = anyio.CancelScope()
            tasks.start_soon(_in_scope, leg, peer.request, "tools/call", body, nonce)
            await until(lambda: _answers_seen(place, nonce) > before)
            if isinstance(peer.wire, HttpClient) and place.era == MODERN:
                leg.cancel()
            else:
                await peer.wire.notify("notifications/cancelled", {"requestId": nonce})
            await until(lambda: any(event["nonce"] == nonce for event in events(place.journal, "cancelled")))
            tasks.cancel_scope.cancel()
    return "the server was asked to stop"


def _declared(answers: Answers | None) -> Message:
    assert answers is not None
    return {"io.modelcontextprotocol/clientCapabilities": answers.capabilities}


async def _in_scope(scope: anyio.CancelScope, request: Any, method: str, body: Message, id_: str) -> None:
    with scope:
        await request(method, body, id=id_)


def _answers_seen(place: Place, nonce: str) -> int:
    """How many answers the server got: to requests of its own, or in retries of this call."""
    if place.is_handshake_server:
        return sum("method" not in message for message in received(place.journal))
    calls = [call["params"] for call in received(place.journal, "tools/call")]
    return sum("inputResponses" in call and call["arguments"]["nonce"] == nonce for call in calls)


async def unanswered(place: Place) -> str:
    """The client never answers, or never comes back; the limit of the hub is 2 s here."""
    nonce = f"u{next(_nonces)}"
    arguments = {"nonce": nonce}
    async with place.open(Answers({"elicitation/create": never()})) as peer:
        seen = await peer.call(place.tool("ask_form"), arguments)
        what = []
        if place.era == HANDSHAKE:
            what.append(f"{_how(seen)}; error {seen.error['code']} after the limit")
            if seen.params("notifications/cancelled"):
                what.append("the question is withdrawn")
        else:
            what.append(_how(seen))
        if place.is_handshake_server:
            await until(lambda: any(event["nonce"] == nonce for event in events(place.journal, "cancelled")))
            what.append("the server is asked to stop")
        else:
            what.append("the server has nothing to stop")
    return ", ".join(what)


async def without_capability(place: Place) -> str:
    """The server asks although the client declared nothing."""
    async with place.open(None) as peer:
        seen = await peer.call(place.tool("ask_form"), {"nonce": next(_nonces), "force": True})
    if "error" in seen.answer:
        return f"the call fails with {seen.error['code']}: {seen.error['message']}"
    if seen.result.get("resultType") == "input_required":
        return "passed on as the server sent it"
    told = seen.result["structuredContent"]["answers"]["form"]["error"]
    return f"not asked; the server got error {told['code']}, {told['message']}; the call continues"


CASES: dict[str, Case] = {
    "elicitation, form": asking("ask_form", form="form"),
    "elicitation, URL": asking("ask_url", url="url"),
    "sampling": asking("ask_sampling", sampling="sampling"),
    "roots": asking("ask_roots", roots="roots"),
    "two questions in a row": asking("ask_two", first="form", second="sampling"),
    "two questions at once": asking("ask_both", first="form", second="roots"),
    "declined by the user": refused_by_user,
    "answered by an error": answered_by_error,
    "question, then cancel": cancelled_later,
    "unanswered question": unanswered,
    "client without the capability": without_capability,
}


class _Hubs:
    """The hubs of one front, open as long as `stack`: one over HTTP, over stdio one for each handshake."""

    def __init__(self, front: str, root: Path, stack: AsyncExitStack) -> None:
        self._front = front
        self._root = root
        self._stack = stack
        self._open: dict[str, Hub | StdioClient] = {}
        self.journals = {name: root / f"{name}.journal" for name in UPSTREAMS}

    async def hub(self, era: str, answers: Answers | None) -> Hub | StdioClient:
        """One that is up, and over stdio past a handshake in which the client said that it can answer that."""
        is_greeted = self._front == "stdio" and era == HANDSHAKE
        kind = json.dumps(answers and answers.capabilities) if is_greeted else ""
        if kind not in self._open:
            servers = {name: argv(name=name, era=of, journal=self.journals[name]) for name, of in UPSTREAMS.items()}
            config = servers_yaml(servers, hub={"limits": {"question_timeout": "2s"}})
            root = self._root / str(len(self._open))
            root.mkdir()
            opened = http_hub(config, root) if self._front == "http" else stdio_hub(config, root)
            hub = self._open[kind] = await self._stack.enter_async_context(opened)
            if is_greeted:
                assert isinstance(hub, StdioClient)
                hub.answers = answers
                await hub.initialize()
        return self._open[kind]

    @asynccontextmanager
    async def client(self, era: str, runs_tools: bool, answers: Answers | None) -> AsyncIterator[Peer]:
        hub = await self.hub(era, answers)
        async with connected(hub, era, answers=answers, runs_tools=runs_tools) as peer:
            await peer.names()  # the servers are up
            yield peer


async def measure(front: str, root: Path, *, runs_tools: bool = False) -> Found:
    """What happened on one front, to calls of the tools or of `run_tool`."""
    found: Found = {}
    async with AsyncExitStack() as stack:
        hubs = _Hubs(front, root, stack)
        places = [
            Place(partial(hubs.client, era, runs_tools), era, upstream, hubs.journals[upstream])
            for era, upstream in itertools.product(ERAS, UPSTREAMS)
        ]
        for name, case in CASES.items():
            for place in places:
                found[name, place.era, UPSTREAMS[place.upstream]] = await case(place)
    return found


def render(by_front: dict[str, Found]) -> str:
    """The document: one table for each pair of eras, the fronts side by side where they differ."""
    lines = [
        "# Questions across eras",
        "",
        "A server may ask its caller in the middle of a call. This page shows what happens to the question.",
        "`python -m tests.interaction.bridge` measures it on real hubs and servers; a test holds the page equal to",
        "the result. An unanswered question ends its call after `hub.limits.question_timeout` (10 minutes by",
        "default). A call through `run_tool` behaves like a direct call.",
    ]
    for client, server in itertools.product(ERAS, ERAS):
        lines += ["", f"## {client} client, {server} server", "", "| case | what happens |", "| --- | --- |"]
        for name in CASES:
            cells = {front: found[name, client, server] for front, found in by_front.items()}
            same = len(set(cells.values())) == 1
            text = next(iter(cells.values())) if same else "; ".join(f"{front}: {cells[front]}" for front in cells)
            lines.append(f"| {name} | {text.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


async def measure_all(*, runs_tools: bool = False) -> dict[str, Found]:
    """What happened on every front, measured side by side: most of it is waiting."""
    by_front: dict[str, Found] = {front: {} for front in FRONTS}

    async def one(front: str) -> None:
        with tempfile.TemporaryDirectory() as root:
            by_front[front] = await measure(front, Path(root), runs_tools=runs_tools)

    async with anyio.create_task_group() as tasks:
        for front in FRONTS:
            tasks.start_soon(one, front)
    return by_front


async def main() -> None:
    DOCUMENT.write_text(render(await measure_all()), "utf-8")
    print(DOCUMENT.read_text("utf-8"), file=sys.stderr)


if __name__ == "__main__":
    anyio.run(main)
