"""Plays scenarios against one server. Each step is one verb."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Literal

import anyio
import httpx2
import msgspec

from mcp_hub.conformance import vectors
from mcp_hub.conformance.peers import NAME, Exchange, RawClient
from mcp_hub.conformance.vectors import STREAMS, Mismatch, Scenario, SeenEvent, filled, matched, shown
from mcp_hub.protocol.sse import EventParser, SseEvent
from mcp_hub.types import HANDSHAKE, MODERN, JsonObject

READ: Final = f"{STREAMS}.read"
_PATIENCE: Final = 60.0
"""Seconds that a step may take."""
_MOST_PAGES: Final = 10_000
_SUFFIXES: Final = 20
"""Cursors, spread over a stream, from which it is read again."""

_MOST_BODY: Final = 16 << 20

Connect = Callable[[JsonObject, bool, str], AbstractAsyncContextManager[RawClient]]
"""A client with these capabilities, of another principal if the second is true, that has this name."""
Cases = Mapping[str, JsonObject]
"""By name `tool` and `arguments` of a call that shows it, `client` (a name), `url`, `token`; `""`: any that streams."""


Verdict = Literal["passed", "failed", "skipped"]


class _Skipped(Exception): ...


class Runner:
    """Plays one scenario with a server, over one transport. `has_other`: a client of another principal exists."""

    def __init__(self, connect: Connect, cases: Cases, transport: str, *, has_other: bool = False) -> None:
        self._connect = connect
        self._cases = cases
        self._transport = transport
        self._has_other = has_other
        self._values: dict[str, object] = {}
        self._peers: dict[str, RawClient] = {}
        self._exchanges: dict[str, tuple[Exchange, RawClient, JsonObject]] = {}
        self._logs: dict[str, Sequence[SeenEvent]] = {}
        self._stack = AsyncExitStack()
        self._warnings: list[str] = []

    async def play(self, scenario: Scenario) -> tuple[Verdict, str]:
        """The verdict, and why, or the warnings. Never raises for what the server does."""
        case = self._cases.get(scenario.needs)
        if case is None:
            return "skipped", f"needs the case {scenario.needs!r} (--cases)"
        if self._transport not in scenario.transports:
            return "skipped", f"not over {self._transport}"
        for name, value in (self._cases[""] | case).items():
            self._values[f"${name}"] = value
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
        return "passed", "; ".join(self._warnings)

    async def _step(self, step: JsonObject) -> None:
        verb = next(iter(step))
        why = ""
        try:
            if verb in ("client", "leave"):  # stays open: no scope may be around it
                return await self._verbs()[verb](step)
            with anyio.fail_after(_PATIENCE):
                await self._verbs()[verb](step)
        except Mismatch as exc:
            why = f"{verb}: {exc}"
        except TimeoutError:
            why = f"{verb}: nothing came within {_PATIENCE:g} s"
        if why and step.get("should"):
            self._warnings.append(f"should: {why}")
        elif why:
            raise Mismatch(why)

    def _verbs(self) -> Mapping[str, Callable[[JsonObject], Awaitable[None]]]:
        return {
            "client": self._client, "leave": self._leave, "offers": self._offers, "send": self._send,
            "expect": self._expect, "notified": self._notified, "cancel": self._cancel, "answer": self._answer,
            "replay": self._replay, "level": self._level,
            "crowd": self._crowd, "live": self._live, "silent": self._silent, "shows": self._shows,
            "logged": self._logged, "read": self._read, "page": self._page, "same": self._same,
            "suffixes": self._suffixes, "kinds": self._kinds, "joined": self._joined, "ends": self._ends,
            "ending": self._ending, "get": self._get, "unmarked": self._unmarked, "begins": self._begins,
            "parted": self._parted,
        }  # fmt: skip

    # -- messages

    async def _client(self, step: JsonObject) -> None:
        is_other = step.get("principal") == "other"
        if is_other and not self._has_other:
            raise _Skipped("needs the token of another principal (--other-token)")
        declares, name = step["declares"], str(self._values.get("$client", NAME))
        capabilities = declares if isinstance(declares, dict) else {"extensions": {STREAMS: {}}} if declares else {}
        client = self._connect(capabilities, is_other, name)
        self._peers[step["client"]] = await self._stack.enter_async_context(client)
        if (era := step.get("eras")) is not None and self._peers[step["client"]].era.value not in era:
            raise _Skipped(f"is played in the {era[0]} era")

    async def _leave(self, step: JsonObject) -> None:
        """All connections are closed, whatever is open."""
        await self._stack.aclose()
        self._peers.clear()

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
        self._exchanges[step["as"]] = await peer.send(request["method"], request["params"]), peer, request

    async def _expect(self, step: JsonObject) -> None:
        exchange, peer, _ = self._exchanges[step["expect"]]
        answer = await exchange.answer()
        if "status" in step and exchange.status is not None:
            expected = step["status"] if peer.era is MODERN else 200
            vectors.check(exchange.status == expected, f"the HTTP status is {exchange.status}, not {expected}")
        kind = "error" if "error" in step else "result"
        if kind not in answer:
            raise Mismatch(f"the response is {shown({k: v for k, v in answer.items() if k != 'jsonrpc'})}")
        matched(step[kind], answer[kind], self._values, kind)

    async def _level(self, step: JsonObject) -> None:
        """Asks for log messages, where the server has them. In the modern era each request does that by itself."""
        peer = self._on(step)
        if peer.era is HANDSHAKE and "logging" in peer.offered:
            answer = await (await peer.send("logging/setLevel", {"level": step["level"]})).answer()
            vectors.check("result" in answer, f"logging/setLevel answers {shown(answer.get('error'))}")

    async def _unmarked(self, step: JsonObject) -> None:
        exchange, _, _ = self._exchanges[step["unmarked"]]
        answer = await exchange.answer()
        whole = answer.get("result") or answer.get("error") or {}
        vectors.check(STREAMS not in (whole.get("_meta") or {}), "the response has a mark")

    async def _notified(self, step: JsonObject) -> None:
        exchange, _, _ = self._exchanges[step["notified"]]
        await exchange.notified(step["count"])
        vectors.check(bool(exchange.notifications), "the call ended without a notification")
        part = exchange.notifications[0].get("params", {}).get("_meta", {}).get(STREAMS, {})
        matched({"stream": step["stream"]}, part, self._values, f"_meta[{STREAMS!r}]")

    async def _cancel(self, step: JsonObject) -> None:
        exchange, peer, _ = self._exchanges[step["cancel"]]
        await peer.cancel(exchange)

    async def _answer(self, step: JsonObject) -> None:
        """Answers the question of a call, as its era does."""
        exchange, peer, request = self._exchanges[step["answer"]]
        if peer.era is HANDSHAKE:
            question = await peer.question()
            vectors.check(question["method"] == step["method"], f"the server asks {question['method']}")
            return await peer.reply(question, step["with"])
        result = (await exchange.answer()).get("result") or {}
        vectors.check(result.get("resultType") == "input_required", f"the response is {shown(result)}")
        mark = (result.get("_meta") or {}).get(STREAMS)
        if mark is not None:
            await self._asked_at_last(peer, mark)
        state = {key: value for key, value in result.items() if key == "requestState"}
        responses = {"inputResponses": dict.fromkeys(result["inputRequests"], step["with"])}
        params = {**request["params"], **responses, **state}
        again = await peer.send(request["method"], params)
        if mark is None:  # the same stream
            again.notifications[:0] = exchange.notifications
        self._exchanges[step["answer"]] = again, peer, {**request, "params": params}

    async def _replay(self, step: JsonObject) -> None:
        """The answers again, with a state that was taken already. Where a question ended its stream there is none."""
        _, peer, request = self._exchanges[step["replay"]]
        if "requestState" in request["params"] and "$asked" not in self._values:
            answer = await (await peer.send(request["method"], request["params"])).answer()
            matched({"code": -32602, "data": {"code": "unknown_state"}}, answer.get("error"), self._values, "the error")

    async def _asked_at_last(self, peer: RawClient, mark: JsonObject) -> None:
        """A response with a question and a mark is the end of its stream (section 4.3)."""
        self._values["$asked"] = mark["stream"]
        vectors.check(mark.get("status") == "completed", f"the mark beside a question is {shown(mark)}")
        events = [event async for event in self._events(peer, mark["stream"], 0, None)]
        last = vectors.whole_log(events, mark["stream"])[-1]
        kind = (last.data.get("result") or {}).get("resultType")
        vectors.check(kind == "input_required", f"the stream of a question ends with {shown(last.data)}")

    async def _crowd(self, step: JsonObject) -> None:
        """Readers that wait, until one is refused as busy."""
        peer = self._on(step)
        params = filled(step["crowd"], self._values)
        assert isinstance(params, dict)
        _check_busy(await _first_refusal(peer, params, step["readers"]))

    # -- events

    async def _live(self, step: JsonObject) -> None:
        exchange, _, _ = self._exchanges[step["live"]]
        await exchange.answer()
        meta = [(message.get("params") or {}).get("_meta") or {} for message in exchange.notifications]
        if step.get("perhaps") and not any(STREAMS in its for its in meta):
            self._logs[step["into"]] = []
            return
        events = vectors.live_events(exchange.notifications, self._values.get(step["stream"]), step["token"])
        self._logs[step["into"]] = events

    async def _silent(self, step: JsonObject) -> None:
        exchange, _, _ = self._exchanges[step["silent"]]
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
            vectors.check(got == expected, f"after cursor {after} of {len(whole)} come events {shown(got)}")

    async def _events(
        self, peer: RawClient, stream: object, after: int, limit: int | None
    ) -> AsyncIterator[JsonObject]:
        for _ in range(_MOST_PAGES):
            params: JsonObject = {"stream": stream, "cursor": str(after), "waitMs": 10_000}
            page = vectors.page(
                await _result(peer, params | ({} if limit is None else {"maxEvents": limit})), after, limit
            )
            vectors.check(not page.truncated, "events are gone already")
            for event in page.events:
                yield event
            after = int(page.cursor)
            if page.closed:
                return
        raise Mismatch(f"after {_MOST_PAGES} pages the stream is not closed")

    async def _page(self, step: JsonObject) -> None:
        params = filled(step["page"], self._values)
        assert isinstance(params, dict)
        page = await _gathered(self._on(step), params)
        matched(step.get("is", {}), page, self._values, "the page")

    async def _same(self, step: JsonObject) -> None:
        live, whole = (self._logs[name] for name in step["same"])
        vectors.same(live, whole[1:-1] if step.get("but") == "start and ending" else whole)

    async def _joined(self, step: JsonObject) -> None:
        vectors.joined(self._logs[step["joined"]])

    async def _logged(self, step: JsonObject) -> None:
        exchange, _, _ = self._exchanges[step["logged"]]
        await exchange.answer()
        vectors.logged(exchange.notifications)

    async def _shows(self, step: JsonObject) -> None:
        exchange, _, _ = self._exchanges[step["shows"]]
        vectors.shown_progress(exchange.notifications, exchange.token)

    async def _ends(self, step: JsonObject) -> None:
        exchange, peer, _ = self._exchanges[step["as"]]
        vectors.same_result(self._logs[step["ends"]][-1], await exchange.answer(), peer.era)

    async def _kinds(self, step: JsonObject) -> None:
        """The log has events of these types in this order, perhaps with others between them."""
        kinds = [event.type for event in self._logs[step["kinds"]]]
        later = iter(kinds)
        vectors.check(all(kind in later for kind in step["are"]), f"the log has {', '.join(kinds)}")

    async def _begins(self, step: JsonObject) -> None:
        whole, live = self._logs[step["begins"]], self._logs[step["with"]]
        vectors.same(live, whole[1 : 1 + len(live)])

    async def _parted(self, step: JsonObject) -> None:
        """The ending of a call whose client has gone, as its transport has it (section 7)."""
        last, era = self._logs[step["parted"]][-1], next(iter(self._peers.values())).era
        seen = {"type": last.type, "data": last.data}
        if self._transport == "stdio" and last.type == "error":
            matched({"type": "error", "data": {"outcome": "unknown", "retryable": False}}, seen, self._values)
        elif self._transport == "http":
            matched({"type": "end", "data": {"outcome": "cancelled" if era is MODERN else "ok"}}, seen, self._values)

    # -- HTTP without MCP

    async def _get(self, step: JsonObject) -> None:
        get = filled(step["get"], self._values)
        assert isinstance(get, dict)
        url = f"{self._values['$url']}/streams/{get['stream']}/events"
        headers = {"authorization": f"Bearer {self._values['$token']}"} if "$token" in self._values else {}
        async with httpx2.AsyncClient(timeout=_PATIENCE, trust_env=False) as http:
            answer = await http.get(url, params=get.get("query", {}), headers=headers | get.get("headers", {}))
            body = _body(answer)
            while body.get("closed") is False and body.get("events"):  # a server may give smaller pages
                further = _body(await http.get(url, params={"after": body["cursor"]}, headers=headers))
                body = {**further, "events": [*body["events"], *further["events"]]}
        seen = {"status": answer.status_code, **body}
        matched(step["is"], seen, self._values, "the answer")
        if "into" in step:
            self._logs[step["into"]] = vectors.whole_log(body["events"], get["stream"])

    async def _ending(self, step: JsonObject) -> None:
        last = self._logs[step["ending"]][-1]
        matched({"type": step["type"], "data": step["data"]}, {"type": last.type, "data": last.data}, self._values)


async def _result(peer: RawClient, params: JsonObject) -> JsonObject:
    answer = await (await peer.send(READ, params)).answer()
    if not isinstance(result := answer.get("result"), dict):
        raise Mismatch(f"{READ} answers {shown(answer.get('error'))}")
    expected = None if peer.era is HANDSHAKE else "complete"
    vectors.check(result.get("resultType") == expected, f"resultType is {shown(result.get('resultType'))}")
    return result


async def _gathered(peer: RawClient, params: JsonObject) -> object:
    """One page, or what a server gives in several smaller ones. Raises `Mismatch`."""
    limit: int | None = params.get("maxEvents")
    page = vectors.page(await _result(peer, params), int(params["cursor"]), limit)
    while vectors.may_follow(page, limit):
        room = None if limit is None else limit - len(page.events)
        further: JsonObject = {"stream": params["stream"], "cursor": page.cursor}
        answer = await _result(peer, further | ({} if room is None else {"maxEvents": room}))
        following = vectors.page(answer, int(page.cursor), room)
        if not following.events:
            break
        page = vectors.together(page, following)
    return msgspec.to_builtins(page)


async def _first_refusal(peer: RawClient, params: JsonObject, count: int) -> JsonObject:
    """The first error of so many reads at once. Raises `Mismatch`."""
    refused: list[JsonObject] = []

    async def read() -> None:
        answer = await (await peer.send(READ, params)).answer()
        if "error" in answer:
            refused.append(answer["error"])
            readers.cancel_scope.cancel()

    async with anyio.create_task_group() as readers:
        for _ in range(count):
            readers.start_soon(read)
    vectors.check(bool(refused), f"{count} readers wait, and none was refused")
    return refused[0]


def _check_busy(error: JsonObject) -> None:
    data = error.get("data") or {}
    vectors.check(data.get("code") == "busy", f"the refusal is {shown(error)}")
    after = data.get("retryAfter")
    vectors.check(isinstance(after, int | float) and not isinstance(after, bool), f"retryAfter is {shown(after)}")


def _first(exc: BaseException) -> BaseException:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc


def _body(answer: httpx2.Response) -> JsonObject:
    """A response by its content type; `last` is the event `closed` or `problem`."""
    type_, content = answer.headers.get("content-type", "").partition(";")[0], answer.content
    if type_ == "application/x-ndjson":
        return {"type": type_, "events": [msgspec.json.decode(line) for line in content.splitlines()]}
    if type_ == "text/event-stream":
        parsed = [event for event in EventParser(_MOST_BODY).events(content) if isinstance(event, SseEvent)]
        *events, last = [(event.type.decode(), msgspec.json.decode(event.data)) for event in parsed if event.data]
        for kind, event in events:
            vectors.check(kind == event["type"], f"the event {shown(event)} comes as {kind}")
        return {"type": type_, "events": [event for _, event in events], "last": {"event": last[0], **last[1]}}
    return {**msgspec.json.decode(content, type=JsonObject), "type": type_}  # a problem has a `type` of its own
