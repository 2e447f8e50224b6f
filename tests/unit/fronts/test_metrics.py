"""What `/metrics` counts is what happened, exactly; parsed as Prometheus would."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mcp_hub.calls.metering import Meters
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.metrics import Metrics
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.rest_peer import RestPeer, exchange, rest_hub
from tests.upstreams.child import WAIT

Key = tuple[str, frozenset[tuple[str, str]]]


def read(metrics: Metrics, profile: str | None = None) -> dict[Key, float]:
    """Every sample by name and labels; each is there once."""
    text = metrics.rendered(profile)[0].decode()
    found: dict[Key, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type in ("counter", "gauge", "histogram"), family
        assert family.documentation
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def key(name: str, **labels: str) -> Key:
    return name, frozenset(labels.items())


def calls(samples: dict[Key, float], server: str = "local") -> dict[str, float]:
    """Those of tools by outcome, without what did not happen."""
    return {
        dict(labels)["outcome"]: value
        for (name, labels), value in samples.items()
        if name == "mcp_hub_calls_total" and ("server", server) in labels and value
    }


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    async with rest_hub(tmp_path, limits={"running_calls": 2, "waiting_calls": 1}, max_result_tokens=0) as peer:
        yield peer


@pytest.fixture
def metrics(peer: RestPeer) -> Metrics:
    return Metrics(peer.app.operations.watch, "1.2")


async def until(metrics: Metrics, wanted: Any) -> dict[Key, float]:
    with anyio.fail_after(WAIT):
        while not wanted(samples := read(metrics)):  # noqa: ASYNC110 - a scrape is a look, as Prometheus has them
            await anyio.sleep(0.01)
    return samples


@pytest.mark.slow
async def test_each_call_counts_once_by_how_it_ended(peer: RestPeer, metrics: Metrics) -> None:
    for _ in range(3):
        assert (await peer.call("echo", {"text": 'an "isError":true of the client'}).ended()).status == 200
    for _ in range(2):
        assert (await peer.call("fail", {"text": "no"}).ended()).json["result"]["isError"]
    assert (await peer.call("echo", {"text": 5}).ended()).status in (200, 400)
    stream = await peer.detached("hold", {"nonce": "a"})
    await peer.tools.has_come("a")
    await peer.ask("DELETE", f"/v1/streams/{stream}")
    await peer.until(stream, "cancelled")
    samples = read(metrics)
    assert calls(samples) == {"ok": 3, "tool_error": 3, "cancelled": 1}
    labels = {"mcp_method_name": "tools/call"}
    assert samples[key("mcp_server_operation_duration_seconds_count", **labels)] == 7
    assert samples[key("mcp_client_operation_duration_seconds_count", server="local", **labels)] == 7
    assert samples[key("mcp_server_operation_duration_seconds_bucket", le="300.0", **labels)] == 7
    assert 0 < samples[key("mcp_server_operation_duration_seconds_sum", **labels)] < WAIT


async def test_a_call_that_ran_out_of_time_says_so(tmp_path: Path) -> None:
    async with rest_hub(tmp_path) as peer:
        limits = peer.app.operations.applier.current.limits
        limits["local"] = TimeLimits(0.1, 0.1), TimeLimits(0.1, 0.1)
        await peer.call("hold", {"nonce": "late"}).ended()
        samples = read(Metrics(peer.app.operations.watch, "1"))
        assert calls(samples) == {"timed_out": 1}


async def test_what_runs_and_waits_and_is_refused_is_seen(peer: RestPeer, metrics: Metrics) -> None:
    before = read(metrics).get(key("mcp_hub_busy_total", setting="hub.limits.waiting_calls"), 0)
    for nonce in "ab":
        await peer.detached("hold", {"nonce": nonce})
        await peer.tools.has_come(nonce)
    waiting = peer.call("hold", {"nonce": "c"})
    samples = await until(metrics, lambda found: found[key("mcp_hub_calls_waiting", server="local")] == 1)
    assert samples[key("mcp_hub_calls_running", server="local")] == 2
    assert samples[key("mcp_hub_streams", server="local")] == 3, "over REST one that waits is a stream, too"
    assert (await peer.call("echo", {"text": "x"}).ended()).status == 503
    assert read(metrics)[key("mcp_hub_busy_total", setting="hub.limits.waiting_calls")] == before + 1
    peer.tools.go.set()
    await waiting.ended()
    samples = await until(metrics, lambda found: not found[key("mcp_hub_calls_running", server="local")])
    assert calls(samples) == {"ok": 3}
    labels = {"mcp_method_name": "tools/call"}
    assert samples[key("mcp_client_operation_duration_seconds_count", server="local", **labels)] == 3
    whole = samples[key("mcp_server_operation_duration_seconds_sum", **labels)]
    assert samples[key("mcp_client_operation_duration_seconds_sum", server="local", **labels)] < whole


async def test_events_on_the_way_are_counted(peer: RestPeer, metrics: Metrics) -> None:
    assert (await peer.call("hurry", {"n": 5}).ended()).status == 200
    assert read(metrics)[key("mcp_hub_events_total", server="local")] == 5


async def test_a_server_shows_its_state_lists_and_nobody_elses_words(peer: RestPeer, metrics: Metrics) -> None:
    await peer.call("echo", {"text": "client-said-this"}, headers={"user-agent": "client-said-this"}).ended()
    await peer.call("no-such-tool-of-client").ended()
    samples = read(metrics)
    assert samples[key("mcp_hub_server_state", server="local", state="ready")] == 1
    assert samples[key("mcp_hub_server_state", server="local", state="failed")] == 0
    assert samples[key("mcp_hub_server_entries", server="local", kind="tool")] == 9
    assert samples[key("mcp_hub_store", state="memory")] == 1
    assert samples[key("process_resident_memory_bytes")] > 1e6 and samples[key("process_open_fds")] > 2
    values = {value for _, labels in samples for name, value in labels if name not in ("le", "version")}
    assert not [value for value in values if "client" in value or value in ("echo", "hold")]


async def test_a_profile_sees_its_own_servers_only(peer: RestPeer, metrics: Metrics) -> None:
    await peer.call("echo", {"text": "x"}).ended()
    every = {value for _, labels in read(metrics) for name, value in labels if name == "server"}
    bound = {value for _, labels in read(metrics, "narrow") for name, value in labels if name == "server"}
    assert bound <= every and "local" in bound


async def test_the_route_takes_a_token_and_a_host_of_ours(metrics: Metrics) -> None:
    endpoints = Endpoints(HttpAuth({"t": Caller("a")}), metrics.routes, refusals=metrics.refusals)

    async def ask(method: str, *headers: tuple[bytes, bytes]) -> tuple[int, bytes]:
        response = await exchange(endpoints, "/metrics", headers, method)
        return response.status, response.body

    host, token = (b"host", b"localhost"), (b"authorization", b"Bearer t")
    assert (await ask("GET", host, token))[0] == 200
    assert await ask("HEAD", host, token) == (200, b"")
    assert (await ask("POST", host, token))[0] == 405
    assert (await ask("GET", host))[0] == 401
    assert (await ask("GET", (b"host", b"evil.example"), token))[0] == 421
    assert (await ask("GET", host, token, (b"origin", b"https://evil.example")))[0] == 403
    openmetrics = await ask("GET", host, token, (b"accept", b"application/openmetrics-text; version=1.0.0"))
    assert openmetrics[1].endswith(b"# EOF\n")
    samples = read(metrics)
    refused = {status: samples[key("mcp_hub_http_refused_total", status=status)] for status in ("401", "421", "403")}
    assert refused == {"401": 1, "421": 1, "403": 1}


def test_what_is_no_longer_configured_is_forgotten() -> None:
    meters = Meters()
    for name in ("a", "b"):
        meters._fresh(name, "tools/call")
    assert [own.server for own in meters.figures({"b"})] == ["b"]
    names = [f"s{number}" for number in range(5000)]
    for name in names:
        meters._fresh(name, "tools/call")
    assert len(meters.figures(names)) == 4096
