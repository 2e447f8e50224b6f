"""A running hub is looked at from outside: health through its life, metrics of what happened, traces at a collector."""

import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from gzip import decompress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.client import Hub, Silent, threaded
from tests.e2e.rest_client import RestClient
from tests.e2e.sse_client import SseClient
from tests.fork_server import forked_command
from tests.interaction.fronts import HANDSHAKE, MODERN, connected, http_hub, stdio_session
from tests.upstreams.child import WAIT
from tests.upstreams.launch import argv, entry, servers_yaml

pytestmark = pytest.mark.anyio

HELD = str(Path(__file__).parents[1] / "upstreams" / "held_start.py")
CANARY = "c4n4ry-0123456789abcdef"
WHOLE, SMALL = "whole-token-0123456789", "small-token-0123456789"
TOKENS = [{"token": WHOLE, "principal": "p", "operator": True}, {"token": SMALL, "principal": "q", "profile": "small"}]


@asynccontextmanager
async def looking(hub: Hub, token: str | None = WHOLE) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    base = hub.url.removesuffix("/mcp")
    async with httpx2.AsyncClient(base_url=base, timeout=WAIT, headers=headers, trust_env=False, verify=False) as http:
        yield http


def configuration(root: Path, *, is_good: bool = True) -> str:
    """Servers `good` and `held`, which starts once the file `gate` is there; and `bad`, which cannot."""
    servers: dict[str, Any] = {"bad": {"command": "no-such-command"}}
    if is_good:
        servers["good"] = {**entry(name=CANARY), "env": {"API_TOKEN": CANARY}}
        servers["held"] = {"command": sys.executable, "args": [HELD, str(root / "gate"), *argv(name="held")]}
    hub = {"tokens": TOKENS, "watch": False, "http": {"port": 0}}
    return json.dumps({"servers": servers, "hub": hub, "profiles": {"small": {"servers": ["held"] if is_good else []}}})


async def samples(http: httpx2.AsyncClient) -> dict[str, float]:
    """By name and labels, as Prometheus writes them."""
    text = (await http.get("/metrics")).text
    assert CANARY not in text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def test_health_and_metrics_tell_the_truth_of_a_hub_through_its_life(tmp_path: Path) -> None:
    async with (
        http_hub(configuration(tmp_path), tmp_path) as hub,
        looking(hub, None) as anybody,
        looking(hub) as http,
        RestClient(hub, WHOLE) as rest,
    ):
        ready = await anybody.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "not ready\n")
        assert (await anybody.get("/livez")).status_code == (await anybody.get("/healthz")).status_code == 200
        assert (await anybody.get("/readyz?verbose")).status_code == (await anybody.get("/metrics")).status_code == 401
        shown = (await http.get("/readyz?verbose")).json()
        assert [reason["code"] for reason in shown["reasons"]] == ["starting"]
        (tmp_path / "gate").touch()
        await becomes(lambda: _is(anybody, "/readyz", 200))
        await _make_calls(rest)
        await becomes(lambda: _has(http, "mcp_hub_server_restarts_total{server=good}", 1))
        await becomes(lambda: _has(http, "mcp_hub_server_up{server=good}", 1))
        await _check_metrics(await samples(http))
        await _check_servers(http, hub)
        await _check_reload(hub, http, tmp_path)


async def becomes(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(WAIT):
        while not await condition():  # noqa: ASYNC110 - a hub that is asked sets no event of ours
            await anyio.sleep(0.02)


async def _is(http: httpx2.AsyncClient, path: str, status: int) -> bool:
    return (await http.get(path)).status_code == status


async def _has(http: httpx2.AsyncClient, name: str, value: float) -> bool:
    return (await samples(http)).get(name) == value


async def _make_calls(rest: RestClient) -> None:
    for _ in range(3):
        assert (await rest.call("good_echo", {"text": "x"})).status_code == 200
    for _ in range(2):
        assert (await rest.call("good_error", {"code": -32050, "message": CANARY})).status_code >= 400
    assert (await rest.call("good_tool_error", {"text": "x"})).json()["result"]["isError"]
    assert (await rest.call("good_progress", {"n": 4})).status_code == 200
    assert (await rest.call("good_crash")).status_code >= 500


async def _check_metrics(found: dict[str, float]) -> None:
    outcomes = ("ok", "tool_error", "rpc_error", "cancelled", "timed_out")
    counts = [found[f"mcp_hub_calls_total{{method=tools/call,outcome={each},server=good}}"] for each in outcomes]
    assert counts == [4, 1, 3, 0, 0]
    assert found["mcp_hub_events_total{server=good}"] == 4
    assert found["mcp_server_operation_duration_seconds_count{mcp_method_name=tools/call}"] == 8
    assert found["mcp_client_operation_duration_seconds_count{mcp_method_name=tools/call,server=good}"] == 8
    assert found["mcp_hub_server_state{server=bad,state=failed}"] == 1
    assert found["mcp_hub_server_failure{code=command_not_found,server=bad}"] == 1
    assert found["mcp_hub_server_up{server=held}"] == 1 and found["mcp_hub_ready{}"] == 1
    assert found["mcp_hub_store{state=durable}"] == 1 and found["mcp_hub_http_requests{}"] == 1
    assert found["mcp_hub_http_refused_total{status=401}"] == 1, "of /metrics; health answers by itself"


async def _check_servers(http: httpx2.AsyncClient, hub: Hub) -> None:
    listed = await http.get("/v1/servers")
    assert CANARY not in listed.text
    servers = {own["server"]: own for own in listed.json()["servers"]}
    good, bad = servers["good"], servers["bad"]
    assert (good["state"], good["restarts"], bad["state"]) == ("ready", 1, "failed")
    assert "***" in good["software"], "a server that calls itself by its secret"
    assert good["pid"] > 0 and good["entries"]["tool"] > 3 and 0 <= good["age"] < WAIT
    assert "no-such-command" in bad["reason"] and "pid" not in bad
    assert (await http.get("/v1/servers/good")).json()["pid"] == good["pid"]
    async with looking(hub, SMALL) as bound:
        names = [own["server"] for own in (await bound.get("/v1/servers")).json()["servers"]]
        assert names == ["held"]
        foreign, unknown = await bound.get("/v1/servers/good"), await bound.get("/v1/servers/none")
        assert foreign.status_code == unknown.status_code == 404
        assert foreign.text.replace("good", "none") == unknown.text
        assert [own["server"] for own in (await bound.get("/readyz?verbose")).json()["servers"]] == ["held"]
        assert "server=good" not in str(await samples(bound)) and "server=held" in str(await samples(bound))


async def _check_reload(hub: Hub, http: httpx2.AsyncClient, root: Path) -> None:
    (root / "servers.yaml").write_text("servers: [")
    assert (await http.post("/v1/reload")).status_code == 422
    told = (await http.get("/readyz?verbose")).json()["reload"]
    assert (told["applied"], told["trigger"]) == (False, "request") and told["findings"]
    (root / "servers.yaml").write_text(configuration(root, is_good=False))
    assert (await http.post("/v1/reload")).status_code == 200
    await becomes(lambda: _is(http, "/readyz", 503))
    assert [reason["code"] for reason in (await http.get("/readyz?verbose")).json()["reasons"]] == ["no_server"]
    assert (await http.get("/healthz")).status_code == 200
    found = await samples(http)
    assert (found["mcp_hub_ready{}"], found["mcp_hub_reloads_total{outcome=applied}"]) == (0, 1)
    hub.send_signal(signal.SIGTERM)


class Collector:
    """Takes what is sent by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: set[str] = set()
        self.headers: list[str | None] = []
        collector = self

        class Handler(Silent):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                body = decompress(body) if self.headers.get("content-encoding") == "gzip" else body
                collector.headers.append(self.headers.get("x-key"))
                if self.path == "/v1/traces":
                    request = ExportTraceServiceRequest.FromString(body)
                    for resource in request.resource_spans:
                        collector.spans += [span for scope in resource.scope_spans for span in scope.spans]
                elif self.path == "/v1/metrics":
                    for each in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                        collector.metrics |= {own.name for scope in each.scope_metrics for own in scope.metrics}
                self.answer(200)

        self.handler = Handler
        self.url = ""

    def check(self, trace: str, span: str, sent_on: str) -> None:
        """The trace has two hops below the client's span; the server got the second one."""
        mine = {own.kind: own for own in self.spans if own.trace_id.hex() == trace}
        server, client = mine[Span.SPAN_KIND_SERVER], mine[Span.SPAN_KIND_CLIENT]
        assert len([own for own in self.spans if own.trace_id.hex() == trace]) == 2
        assert (server.parent_span_id.hex(), client.parent_span_id) == (span, server.span_id)
        assert sent_on.split("-")[1:3] == [trace, client.span_id.hex()]


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    with threaded(collector.handler) as collector.url:
        yield collector


def traced_config(collector: Collector) -> str:
    telemetry = {"endpoint": collector.url, "headers": {"x-key": CANARY}}
    return servers_yaml({"a": argv(name="a")}, hub={"telemetry": telemetry})


def parent(number: int) -> tuple[str, str, str]:
    trace, span = f"{number:032x}", f"{number:016x}"
    return trace, span, f"00-{trace}-{span}-01"


async def test_a_trace_continues_over_http_whatever_the_front(collector: Collector, tmp_path: Path) -> None:
    got: dict[int, str] = {}
    async with http_hub(traced_config(collector), tmp_path) as hub:
        for number, era in enumerate((HANDSHAKE, MODERN), 1):
            async with connected(hub, era) as peer:
                await peer.names()
                got[number] = _parent_of(json.loads((await peer.call("a_meta", traceparent=parent(number)[2])).text))
        async with SseClient.connect(hub.url) as old:
            await old.initialize()
            params = {"name": "a_meta", "arguments": {}, "_meta": {"traceparent": parent(3)[2]}}
            answer = await old.request("tools/call", params)
            got[3] = _parent_of(json.loads(answer["result"]["content"][0]["text"]))
        async with RestClient(hub) as rest:
            body = {"arguments": {}, "_meta": {"traceparent": parent(4)[2]}}
            answer = (await rest.ask("POST", "/tools/a_meta/call", body)).json()
            got[4] = _parent_of(json.loads(answer["result"]["content"][0]["text"]))
        stderr = hub
    for number, sent_on in got.items():
        collector.check(*parent(number)[:2], sent_on)
    assert set(collector.headers) == {CANARY} and CANARY not in stderr.stderr
    assert collector.metrics == {"mcp.server.operation.duration", "mcp.client.operation.duration"}


async def test_a_trace_continues_over_stdio_in_both_eras(collector: Collector, tmp_path: Path) -> None:
    got: dict[int, str] = {}
    async with stdio_session(traced_config(collector), tmp_path) as client:
        for number, era in enumerate((HANDSHAKE, MODERN), 1):
            async with connected(client, era) as peer:
                await peer.names()
                got[number] = _parent_of(json.loads((await peer.call("a_meta", traceparent=parent(number)[2])).text))
        assert await client.close() == 0
    for number, sent_on in got.items():
        collector.check(*parent(number)[:2], sent_on)


def _parent_of(meta: dict[str, Any]) -> str:
    return str(meta["traceparent"])


async def test_telemetry_that_has_no_place_to_go_stops_the_hub_before_it_starts(tmp_path: Path) -> None:
    config = tmp_path / "servers.yaml"
    config.write_text("hub:\n  telemetry:\n    enabled: true\nservers: {}\n")
    done = await anyio.run_process([*forked_command(), "check", "--config", str(config)], check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 2 and "servers.yaml:3: hub.telemetry.enabled: " in said and "[missing_key]" in said
