"""A hub in virtual time in front of one client that would cut long calls, over a pipe."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from mcp_hub.calls.hub_tools.own_tools import OFFERED
from mcp_hub.events import Delta
from mcp_hub.protocol.jsonrpc.envelope import Frame, whole
from mcp_hub.types import PROGRAM, ClientKind, Kind, Snapshot
from tests.unit.calls.virtual_time import named_like, run, sleep
from tests.unit.fakes import enveloped
from tests.unit.fronts.task_hub import Sent, Server, TaskHub
from tests.upstreams.messages import rpc

DEADLINE = 45.0
EARLY = ClientKind(expose="full", max_result_tokens=0, hub_tools=OFFERED, soft_deadline=DEADLINE)
TALKING = ClientKind(expose="full", max_result_tokens=0, hub_tools=OFFERED, soft_deadline=DEADLINE, partials="line")
STREAMS = "dev.mcp-hub/streams"
OUTPUT = {"type": "object", "properties": {"n": {"type": "integer"}}}


class Described(Server):
    """A server whose tools have output schemas."""

    def snapshot(self) -> Snapshot:
        tools = [{"name": name, "inputSchema": {"type": "object"}, "outputSchema": OUTPUT} for name in self.tools]
        return Snapshot("git", super().snapshot().era, {Kind.TOOL: tuple(json.dumps(tool).encode() for tool in tools)})


class SoftHub(TaskHub):
    """Its pipe's client speaks the handshake era; `raw` has every frame that it was sent."""

    def __init__(self) -> None:
        super().__init__("pipe", server=Described())
        self.port.views._client_kind = lambda session: EARLY if session.caller.principal == "me" else PROGRAM
        self.raw: list[bytes] = []
        self._keep = self._pipe.send
        self._pipe.send = self._keeping  # type: ignore[method-assign]

    def _keeping(self, frame: Frame) -> None:
        self.raw.append(whole(frame))
        self._keep(frame)

    async def hello(self, **capabilities: Any) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "x"}}
        await self.ask("initialize", params)

    async def ask(self, method: str, params: Any) -> Sent:
        """A request of the handshake era."""
        self._sent += 1
        sent = self._write(rpc(method, params, id=self._sent))
        await sleep(0.05)
        return sent

    async def tool(self, name: str, arguments: Any = None, token: str | None = None) -> Sent:
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return await self.ask("tools/call", {"name": name, "arguments": arguments or {}, **meta})

    async def calls(self, **capabilities: Any) -> Sent:
        """A call of `slow` by a client that has shaken hands."""
        if not self.raw:
            await self.hello(**capabilities)
        return await self.tool("slow")

    async def softly(self, **capabilities: Any) -> str:
        """The stream of a call that was answered though it runs."""
        sent = await self.calls(**capabilities)
        await sleep(DEADLINE)
        return soft(sent)["stream"]

    def answered(self, question: Any, result: Any) -> None:
        """The client answers a question of the hub's."""
        self.replied(question, {"result": result})

    def replied(self, question: Any, answer: Any) -> None:
        """The same with a result or an error."""
        pending = self._pipe.requests.pending.pop(question["id"])
        pending.settle(enveloped({"jsonrpc": "2.0", "id": question["id"], **answer}))

    @property
    def waits_for(self) -> list[int]:
        """The ids of questions to the client whose answers would count."""
        return list(self._pipe.requests.pending)

    @property
    def sent_to_client(self) -> list[Any]:
        return self._pipe.sent


def soft(sent: Sent) -> dict[str, str]:
    """The mark of an answer that is not the result."""
    mark: dict[str, str] = sent.result["_meta"][STREAMS]
    assert "not the result" in said(sent) and sent.result["isError"] is False
    assert mark["status"] == ("input_required" if "waits for an answer" in said(sent) else "working")
    return mark


def said(sent: Sent) -> str:
    (block,) = sent.result["content"]
    return str(block["text"])


def delta(text: str, index: int = 0, channel: str = "content") -> Delta:
    return Delta(json.dumps([{"type": "text", "text": text}]).encode(), index, channel)


def in_virtual_time(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test with a `SoftHub`."""

    def test(**given: Any) -> None:
        run(lambda: served(partial(scenario, **given)))

    async def served(scenario: Callable[..., Coroutine[Any, Any, None]]) -> None:
        await SoftHub().serve(scenario)
        leftover = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.wait(leftover, timeout=240) if leftover else None

    return named_like(scenario, test)
