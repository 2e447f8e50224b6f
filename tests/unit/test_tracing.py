"""Calls as operators see them: spans and the context that goes to the server, and raw messages of one server."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mcp_hub.app.dashboard.seen import MOST, SECONDS, RawMessages
from mcp_hub.app.telemetry import tracing_of
from mcp_hub.app.tracing import Tracing
from mcp_hub.call import Call, CallChannel
from mcp_hub.calls.metering import BOUNDS
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.clock import SystemClock
from mcp_hub.config.schema.settings import Settings
from mcp_hub.events import Completed
from mcp_hub.masking import hide
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rest.overview import RawBody
from mcp_hub.sessions.session import LOCAL, ClientOffer, Session
from mcp_hub.types import ClientKind, Era, Kind, RawObject, UpstreamState, UpstreamStatus
from mcp_hub.wire.base import Tapped, watch
from tests.unit.fakes import HandClock
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, RestPeer, problem, rest_hub
from tests.unit.wire.http_server import Reply, Request
from tests.unit.wire.http_wires import wired
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import entry

pytestmark = pytest.mark.anyio

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Traced:
    """A hub, its spans and durations, and the `_meta` of each call as its server got it."""

    def __init__(self, peer: RestPeer) -> None:
        self.peer = peer
        self.sent_on: list[RawObject] = []
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        upstream = peer.app.upstreams["local"]
        peer.app.registry.tracer = Tracing(
            tracers, meters, clock=SystemClock(), status=lambda name: upstream.status(), address=lambda name: None,
            is_http=True,
        )  # fmt: skip
        before = upstream.call

        async def call(call: Call, channel: CallChannel) -> Completed:
            self.sent_on.append(call.meta)
            return await before(call, channel)

        upstream.call = call  # type: ignore[method-assign]  # a look at what goes to the server

    async def call(self, tool: str, arguments: Any = None, **meta: Any) -> Any:
        response = self.peer.start("POST", f"/v1/tools/{tool}/call", {"arguments": arguments or {}, "_meta": meta})
        await response.ended()
        return response.json

    def hops(self) -> tuple[ReadableSpan, ReadableSpan]:
        """The two spans of the only call."""
        spans = {span.kind: span for span in self._spans.get_finished_spans()}
        assert len(self._spans.get_finished_spans()) == len(spans) == 2
        return spans[SpanKind.SERVER], spans[SpanKind.CLIENT]

    def durations(self) -> Iterator[tuple[str, Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        yield metric.name, point

    def all_text(self) -> str:
        return "".join(span.to_json() for span in self._spans.get_finished_spans())


@pytest.fixture
async def traced(tmp_path: Path) -> AsyncIterator[Traced]:
    async with rest_hub(tmp_path) as peer:
        yield Traced(peer)


def texts(meta: RawObject) -> dict[str, Any]:
    return {key: msgspec.json.decode(value) for key, value in meta.items()}


async def test_the_clients_trace_goes_through_both_hops_to_the_server(traced: Traced) -> None:
    await traced.call("echo", {"text": "x"}, traceparent=PARENT, tracestate="a=1", baggage="who=me", other=[1])
    server, client = traced.hops()
    assert server.parent is not None and client.parent is not None
    assert f"{server.parent.span_id:016x}" == SPAN and client.parent.span_id == server.context.span_id
    assert {f"{span.context.trace_id:032x}" for span in (server, client)} == {TRACE}
    (meta,) = traced.sent_on
    assert texts(meta) == {
        "traceparent": f"00-{TRACE}-{client.context.span_id:016x}-01",
        "tracestate": "a=1",
        "baggage": "who=me",
        "other": [1],
    }


async def test_spans_have_the_names_and_attributes_of_the_conventions(traced: Traced) -> None:
    await traced.call("echo", {"text": "x"})
    server, client = traced.hops()
    assert server.parent is None and server.name == client.name == "tools/call echo"
    common = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "echo", "gen_ai.operation.name": "execute_tool"}
    assert dict(server.attributes or {}).items() >= {**common, "network.transport": "tcp"}.items()
    assert dict(client.attributes or {}) == {**common, "mcp_hub.server": "local"}
    assert server.status.status_code is client.status.status_code is StatusCode.UNSET
    durations = dict(traced.durations())
    assert sorted(durations) == ["mcp.client.operation.duration", "mcp.server.operation.duration"]
    for point in durations.values():
        assert point.count == 1 and tuple(point.explicit_bounds) == BOUNDS


@pytest.mark.parametrize(
    "context",
    [
        {"traceparent": "nonsense", "tracestate": "a=1"},
        {"traceparent": 5, "tracestate": [1]},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": "x" * 10_000, "tracestate": "y" * 10_000},
    ],
)
async def test_a_context_that_is_none_begins_a_trace_and_does_not_go_on(
    traced: Traced, context: dict[str, Any]
) -> None:
    await traced.call("echo", {"text": "x"}, **context)
    server, client = traced.hops()
    assert server.parent is None
    flags = client.context.trace_flags  # bit 1: the trace id is random (Trace Context level 2)
    expected = f"00-{server.context.trace_id:032x}-{client.context.span_id:016x}-{flags:02x}"
    assert texts(traced.sent_on[0]) == {"traceparent": expected}


@pytest.mark.slow
async def test_a_tools_error_and_a_time_limit_are_distinguished(traced: Traced) -> None:
    await traced.call("fail", {"text": "s3cret-argument"})
    for span in traced.hops():
        assert (span.attributes or {})["error.type"] == "tool_error" and span.status.status_code is StatusCode.ERROR
    assert "s3cret" not in traced.all_text()
    traced._spans.clear()
    traced.peer.app.operations.applier.current.limits["local"] = TimeLimits(0.1, 0.1), TimeLimits(0.1, 0.1)
    await traced.call("hold", {"nonce": "s3cret-argument"})
    for span in traced.hops():
        assert (span.attributes or {})["error.type"] == "timeout" and span.status.status_code is StatusCode.ERROR
    assert "s3cret" not in traced.all_text()


async def test_a_cancelled_call_has_both_spans_ended(traced: Traced) -> None:
    stream = await traced.peer.detached("hold", {"nonce": "a"})
    await traced.peer.tools.has_come("a")
    await traced.peer.ask("DELETE", f"/v1/streams/{stream}")
    await traced.peer.until(stream, "cancelled")
    assert [(span.attributes or {})["error.type"] for span in traced.hops()] == ["cancelled", "cancelled"]


async def test_a_tool_of_the_hubs_own_has_one_hop(traced: Traced) -> None:
    session = Session("s", LOCAL, Era.HANDSHAKE, "2025-11-25", offer=ClientOffer(ClientKind(expose="search"), "search"))
    params = {"name": msgspec.Raw(b'"find_tools"'), "arguments": msgspec.Raw(b'{"query":"echo"}')}
    record = traced.peer.app.hub.call(
        session, "tools/call", params, RequestMeta(None, None, None, None, None, {})
    ).record
    assert record.task is not None
    with anyio.fail_after(WAIT):
        await record.task
    (span,) = traced._spans.get_finished_spans()
    assert (span.kind, span.name) == (SpanKind.SERVER, "tools/call find_tools") and traced.sent_on == []


async def test_without_telemetry_the_context_continues_as_it_came(tmp_path: Path) -> None:
    async with rest_hub(tmp_path) as peer:
        assert peer.app.registry.tracer is None
        traced = Traced(peer)
        peer.app.registry.tracer = None
        sent = {"traceparent": "nonsense", "tracestate": "a=1", "baggage": "b=2"}
        await traced.call("echo", {"text": "x"}, **sent)
        assert texts(traced.sent_on[0]) == sent


async def test_what_the_environment_sends_to_a_collector_is_secret() -> None:
    settings = Settings.model_validate({"hub": {"telemetry": {"enabled": True}}})
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_HEADERS": "a=b, x-key=s3cr3t%2Dkey"}
    tracing = tracing_of(
        settings, env, SystemClock(), lambda name: UpstreamStatus(name, UpstreamState.READY), is_http=False
    )
    assert tracing is not None
    await tracing.close()
    assert hide("sent s3cr3t%2Dkey, which is s3cr3t-key") == "sent ***, which is ***"


@pytest.mark.slow
async def test_a_collector_that_is_gone_disturbs_no_call(tmp_path: Path) -> None:
    """Nobody listens there: what is queued is lost, within a bound, and calls are answered meanwhile."""
    async with rest_hub(tmp_path, telemetry={"endpoint": "http://127.0.0.1:9"}) as peer:
        assert peer.app.registry.tracer is not None
        for _ in range(20):
            response = await peer.call("echo", {"text": "x"}).ended()
            assert response.status == 200


SECRET = "Bearer abcdef0123456789"


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    servers: dict[str, Any] = {"a": {**entry(name="a"), "per_tool": {"echo": {"name": "echoes"}}}}
    async with dashboard_hub(tmp_path, servers=servers, tokens=True) as running:
        await until(lambda: "echoes" in [one.exported for one in running.app.hub.catalog.view(None).entries(Kind.TOOL)])
        yield running


async def echo(peer: DashboardPeer) -> None:
    answer = await peer.post("/v1/tools/echoes/call", {"arguments": {"text": f"é {SECRET}"}})
    assert answer.status == 200, answer.body


@pytest.mark.processes
async def test_messages_are_recorded_on_request_masked_and_for_operators_alone(peer: DashboardPeer) -> None:
    await echo(peer)
    assert await peer.get("/raw?server=a") == {"server": "a", "left": 0.0, "messages": []}
    assert (await peer.post("/raw", {"server": "a", "action": "start"})).status == 204
    await echo(peer)
    first = await peer.get("/raw?server=a")
    assert 0 < first["left"] <= SECONDS
    request, answer = first["messages"]
    assert (request["incoming"], answer["incoming"]) == (False, True)
    assert json.loads(request["text"])["params"]["arguments"] == {"text": "é Bearer ***"} and "***" in answer["text"]
    assert (await peer.get("/raw?server=a&after=1"))["messages"] == [answer]
    assert (await peer.post("/raw", {"server": "a", "action": "stop"})).status == 204
    await echo(peer)
    again = await peer.get("/raw?server=a")
    assert again["left"] == 0 and again["messages"] == first["messages"], "still there, and nothing new"
    for method, path, body in (("GET", "/raw?server=a", None), ("POST", "/raw", {"server": "a", "action": "start"})):
        problem(await peer.page(method, path, body, token=ALICE).ended(), 403, "operator_required")
    problem(await peer.post("/raw", {"server": "none", "action": "start"}), 404, "unknown_server")
    problem(await peer.post("/raw", {"server": "local", "action": "start"}), 409, "no_connection")


@pytest.mark.processes
async def test_messages_are_bounded_and_forgotten_after_five_minutes(peer: DashboardPeer) -> None:
    clock = HandClock()
    raw = RawMessages(peer.app.current, peer.app.upstream_set, clock)
    raw.switch(RawBody("a", "start"))
    (wire,) = [one.wire for one in peer.app.upstream_set.upstreams["a"].lifecycle.peers or ()]
    assert isinstance(wire, Tapped) and wire.tap is not None
    for number in range(3 * MOST):
        wire.tap(True, b"%d" % number)
    kept = (await raw.read("a", 0)).messages
    assert [one.text for one in kept[:2]] == ["2000", "2001"] and len(kept) == 100, "the newest, a page of them"
    wire.tap(True, b"Bearer " + b"a" * 300)
    (short,) = (await raw.read("a", 3 * MOST)).messages
    assert short.text == "Bearer ***" and not short.cut, "masked, and whole"
    for _ in range(200):
        wire.tap(False, b"x" * 16_370 + SECRET.encode() + b"y" * 200_000)
    large = (await raw.read("a", 0)).messages
    assert len(large) <= 64 and {one.size for one in large} == {16_370 + len(SECRET) + 200_000}
    assert {one.cut for one in large} == {True} and not any(one.cut for one in kept)
    assert all(len(one.text) <= 16 << 10 and "abcdef" not in one.text for one in large)
    clock.time += SECONDS + 1
    await echo(peer)
    assert (await raw.read("a", 0)).messages == [] and (await raw.read("a", 0)).left == 0
    assert wire.tap is None, "nothing is on the way of a message any more"


async def test_wire_of_a_remote_server_has_its_messages_recorded() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.progress("t", 1)
        await stream.answer(request.message["id"], {"done": True})
        await stream.end()

    async with wired(script) as talk:
        messages: list[tuple[bool, Any]] = []
        stop = watch(talk.wire, lambda is_incoming, message: messages.append((is_incoming, json.loads(message))))
        await talk.ask()
        stop()
        await talk.ask()
    assert [(is_incoming, one.get("method")) for is_incoming, one in messages] == [
        (False, "tools/call"), (True, "notifications/progress"), (True, None)
    ]  # fmt: skip
