"""Plays scenarios against one server. Each step is one verb."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Literal

import anyio
import msgspec

from mcp_hub.conformance import vectors
from mcp_hub.conformance.peers import Exchange, RawClient, declared
from mcp_hub.conformance.vectors import STREAMS, Mismatch, Scenario, SeenEvent, filled, matched, shown
from mcp_hub.types import HANDSHAKE, MODERN, JsonObject

READ: Final = f"{STREAMS}.read"
_PATIENCE: Final = 60.0
"""Seconds that a step may take."""
_MOST_PAGES: Final = 10_000
_SUFFIXES: Final = 20
"""Cursors, spread over a stream, from which it is read again."""

Connect = Callable[[JsonObject, bool], AbstractAsyncContextManager[RawClient]]
"""A client with these capabilities; of another principal if the second is true."""


Verdict = Literal["passed", "failed", "skipped"]


class _Skipped(Exception): ...


class Runner:
    """Plays one scenario with a server, and a call of it that streams.

    `has_other`: a client of another principal exists.
    """

    def __init__(self, connect: Connect, tool: str, arguments: JsonObject, *, has_other: bool = False) -> None:
        self._connect = connect
        self._has_other = has_other
        self._values: dict[str, object] = {"$tool": tool, "$arguments": arguments}
        self._peers: dict[str, RawClient] = {}
        self._exchanges: dict[str, tuple[Exchange, RawClient]] = {}
        self._logs: dict[str, Sequence[SeenEvent]] = {}
        self._stack = AsyncExitStack()
        self._verbs: Mapping[str, Callable[[JsonObject], Awaitable[None]]] = {
            "offers": self._offers, "send": self._send, "expect": self._expect,
            "notified": self._notified, "live": self._live, "silent": self._silent, "read": self._read,
            "page": self._page, "same": self._same, "suffixes": self._suffixes, "cancel": self._cancel,
            "ending": self._ending,
        }  # fmt: skip

    async def play(self, scenario: Scenario) -> tuple[Verdict, str]:
        """The verdict, and why. Never raises for what the server does."""
        try:
            async with self._stack:
                for step in scenario.steps:
                    await self._step(step)
        except (Mismatch, _Skipped, BaseExceptionGroup) as exc:
            match cause := _first(exc):
                case _Skipped():
                    return "skipped", str(cause)
                case Mismatch():
                    return "failed", str(cause)
            raise
        return "passed", ""

    async def _step(self, step: JsonObject) -> None:
        verb = next(iter(step))
        try:
            if verb == "client":  # stays open: no scope may be around it
                return await self._client(step)
            with anyio.fail_after(_PATIENCE):
                await self._verbs[verb](step)
        except Mismatch as exc:
            raise Mismatch(f"{verb}: {exc}") from None
        except TimeoutError:
            raise Mismatch(f"{verb}: nothing came within {_PATIENCE:g} s") from None

    # -- messages

    async def _client(self, step: JsonObject) -> None:
        is_other = step.get("principal") == "other"
        if is_other and not self._has_other:
            raise _Skipped("needs the token of another principal (--other-token)")
        capabilities = declared(step["declares"], STREAMS)
        self._peers[step["client"]] = await self._stack.enter_async_context(self._connect(capabilities, is_other))

    def _on(self, step: JsonObject) -> RawClient:
        return self._peers[step.get("on", next(reversed(self._peers)))]

    async def _offers(self, step: JsonObject) -> None:
        peer = self._on(step)
        places = ("extensions",) if peer.era is MODERN else ("extensions", "experimental")
        offers = [(peer.offered.get(capability) or {}).get(step["offers"]) for capability in places]
        vectors.check(
            any(isinstance(offer, dict) for offer in offers), f"capabilities.{places[0]} lacks {step['offers']}"
        )

    async def _send(self, step: JsonObject) -> None:
        request = filled(step["send"], self._values)
        assert isinstance(request, dict)
        peer = self._on(step)
        self._exchanges[step["as"]] = await peer.send(request["method"], request["params"]), peer

    async def _expect(self, step: JsonObject) -> None:
        exchange, _ = self._exchanges[step["expect"]]
        answer = await exchange.answer()
        kind = "error" if "error" in step else "result"
        if kind not in answer:
            raise Mismatch(f"the response is {shown({k: v for k, v in answer.items() if k != 'jsonrpc'})}")
        matched(step[kind], answer[kind], self._values, kind)

    async def _notified(self, step: JsonObject) -> None:
        exchange, _ = self._exchanges[step["notified"]]
        await exchange.notified(step["count"])
        vectors.check(bool(exchange.notifications), "the call ended without a notification")
        part = exchange.notifications[0].get("params", {}).get("_meta", {}).get(STREAMS, {})
        matched({"stream": step["stream"]}, part, self._values, f"_meta[{STREAMS!r}]")

    async def _cancel(self, step: JsonObject) -> None:
        exchange, peer = self._exchanges[step["cancel"]]
        await peer.cancel(exchange)

    # -- events

    async def _live(self, step: JsonObject) -> None:
        exchange, _ = self._exchanges[step["live"]]
        await exchange.answer()
        events = vectors.live_events(exchange.notifications, self._values.get(step["stream"]), step["token"])
        self._logs[step["into"]] = events

    async def _silent(self, step: JsonObject) -> None:
        exchange, _ = self._exchanges[step["silent"]]
        await exchange.answer()
        for message in exchange.notifications:
            meta = (message.get("params") or {}).get("_meta") or {}
            vectors.check(STREAMS not in meta, f"a notification has {STREAMS}")

    async def _read(self, step: JsonObject) -> None:
        stream = filled(step["read"], self._values)
        events = [event async for event in self._events(self._on(step), stream, 0, step.get("maxEvents"))]
        self._logs[step["into"]] = vectors.whole_log(events, stream)

    async def _suffixes(self, step: JsonObject) -> None:
        stream, whole = filled(step["of"], self._values), self._logs[step["suffixes"]]
        every = max(1, len(whole) // _SUFFIXES)
        for after in range(0, len(whole) + 1, every):
            got = [event["seq"] async for event in self._events(self._on(step), stream, after, None)]
            expected = list(range(after + 1, len(whole) + 1))
            vectors.check(got == expected, f"behind cursor {after} of {len(whole)} come events {shown(got)}")

    async def _events(
        self, peer: RawClient, stream: object, after: int, limit: int | None
    ) -> AsyncIterator[JsonObject]:
        for _ in range(_MOST_PAGES):
            params: JsonObject = {"stream": stream, "cursor": str(after), "waitMs": 10_000}
            page = vectors.page(
                await self._result(peer, params | ({} if limit is None else {"maxEvents": limit})), after, limit
            )
            vectors.check(not page.truncated, "events are gone already")
            for event in page.events:
                yield event
            after = int(page.cursor)
            if page.closed:
                return
        raise Mismatch(f"after {_MOST_PAGES} pages the stream is not closed")

    async def _result(self, peer: RawClient, params: JsonObject) -> JsonObject:
        answer = await (await peer.send(READ, params)).answer()
        if not isinstance(result := answer.get("result"), dict):
            raise Mismatch(f"{READ} answers {shown(answer.get('error'))}")
        expected = None if peer.era is HANDSHAKE else "complete"
        vectors.check(result.get("resultType") == expected, f"resultType is {shown(result.get('resultType'))}")
        return result

    async def _page(self, step: JsonObject) -> None:
        params = filled(step["page"], self._values)
        assert isinstance(params, dict)
        page = vectors.page(await self._result(self._on(step), params), int(params["cursor"]), params.get("maxEvents"))
        matched(step.get("is", {}), msgspec.to_builtins(page), self._values, "the page")

    async def _same(self, step: JsonObject) -> None:
        live, whole = (self._logs[name] for name in step["same"])
        vectors.same(live, whole[1:-1] if step.get("but") == "start and ending" else whole)

    async def _ending(self, step: JsonObject) -> None:
        last = self._logs[step["ending"]][-1]
        matched({"type": step["type"], "data": step["data"]}, {"type": last.type, "data": last.data}, self._values)


def _first(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
