"""Calls that are made again, through a whole hub: servers that die, that are overloaded, that want fewer calls."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.bad_upstreams import LOST
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, connected, http_hub, stdio_hub
from tests.upstreams.child import HttpUpstream, until
from tests.upstreams.launch import argv, journal, received, servers_yaml

pytestmark = pytest.mark.anyio

NEVER = {"retry": {"attempts": 1}}


def config(server: list[str] | str, **defaults: Any) -> str:
    return servers_yaml({"s": server}, defaults={"restart": {"intensity": 50}, **defaults}, hub={"prefix": "always"})


def dying(root: Path) -> list[str]:
    """A server whose tool `env` kills it once."""
    return argv(mode="crash-after", on="env", once=root / "once", journal=root / "journal")


def calls(root: Path) -> int:
    return len(received(root / "journal", "tools/call"))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.first(1)
async def test_a_call_that_is_safe_survives_its_server(era: str, tmp_path: Path) -> None:
    async with stdio_hub(config(dying(tmp_path), idempotent=True), tmp_path) as wire:
        if era == HANDSHAKE:
            await wire.initialize()
        async with connected(wire, era) as peer:
            await peer.names()
            assert "content" in (await peer.call("s_env")).result
    assert calls(tmp_path) == 2


@pytest.mark.first(1)
@pytest.mark.parametrize("defaults", [{}, {"idempotent": True, **NEVER}])
async def test_any_other_is_lost_with_it_and_made_once(defaults: dict[str, Any], tmp_path: Path) -> None:
    async with http_hub(config(dying(tmp_path), **defaults), tmp_path) as hub, connected(hub, HANDSHAKE) as peer:
        await peer.names()
        assert (await peer.call("s_env")).error["code"] == LOST
    assert calls(tmp_path) == 1


async def test_readers_of_the_stream_hear_of_the_attempts(tmp_path: Path) -> None:
    text = config(dying(tmp_path), retry={"on": ["lost"]})
    async with http_hub(text, tmp_path) as hub, RestClient(hub) as client:
        stream = await client.started("s_env")
        await client.until(stream, "completed")
        told = (await client.ask("GET", f"/streams/{stream}/events")).json()["events"]
    attempt = next(event["data"] for event in told if event["type"] == "attempt")
    assert [event["type"] for event in told] == ["start", "attempt", "end"]
    assert (attempt["attempt"], attempt["reason"]) == (2, "lost") and "lost its connection" in attempt["detail"]


@pytest.mark.parametrize(("mode", "reason"), [("http-503", "unavailable"), ("http-429", "rate_limited")])
@pytest.mark.first(1)
async def test_a_server_that_wants_a_pause_gets_it_and_then_the_call(mode: str, reason: str, tmp_path: Path) -> None:
    async with (
        HttpUpstream(mode=mode, on="env", once=tmp_path / "once", retry_after=1) as server,
        http_hub(config(server.url), tmp_path) as hub,
        RestClient(hub) as client,
    ):
        stream = await client.started("s_env")
        await client.until(stream, "completed")
        told = (await client.ask("GET", f"/streams/{stream}/events")).json()["events"]
    (attempt,) = [event["data"] for event in told if event["type"] == "attempt"]
    assert attempt["reason"] == reason and attempt["after"] >= 1


@pytest.mark.first(1)
@pytest.mark.parametrize(("mode", "status"), [("http-503", 503), ("http-429", 429)])
async def test_a_pause_that_is_too_long_is_handed_on(mode: str, status: int, tmp_path: Path) -> None:
    async with (
        HttpUpstream(mode=mode, on="env", retry_after=3600) as server,
        http_hub(config(server.url, timeout="60s"), tmp_path) as hub,
        RestClient(hub) as client,
        connected(hub, HANDSHAKE) as peer,
    ):
        refused = await client.call("s_env")
        assert (refused.status_code, refused.headers["retry-after"]) == (status, "3600")
        assert refused.json()["code"] == "upstream_refused" and refused.json()["retryable"] is True
        error = (await peer.call("s_env")).error
        assert error["code"] == LOST and error["data"]["retryAfter"] == 3600


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.first(1)
async def test_silent_call_is_cancelled_at_its_server_and_made_again(era: str, tmp_path: Path) -> None:
    gate, root = tmp_path / "gate", tmp_path / "journal"
    rule = {"attempts": 10, "first": "100ms", "factor": 1, "on": ["timeout"]}
    text = config(argv(journal=root), timeout="1s", idempotent=True, retry=rule)
    async with stdio_hub(text, tmp_path) as wire:
        if era == HANDSHAKE:
            await wire.initialize()
        async with connected(wire, era) as peer, anyio.create_task_group() as tasks:
            await peer.names()
            tasks.start_soon(_opened, gate, root)
            answer = await peer.call("s_progress", {"n": 2, "gate": str(gate)}, token="t")
    assert "content" in answer.result
    values = [params["progress"] for params in answer.progress]
    assert len(values) >= 3 and values == sorted(set(values)), "those of all attempts rise"
    messages = [record["received"] for record in journal(root) if "received" in record]
    sent = [message for message in messages if message.get("method") in ("tools/call", "notifications/cancelled")]
    assert [message["method"] for message in sent[:3]] == ["tools/call", "notifications/cancelled", "tools/call"]
    assert sent[1]["params"]["requestId"] == sent[0]["id"] != sent[2]["id"]


async def _opened(gate: Path, root: Path) -> None:
    await until(lambda: received(root, "notifications/cancelled"))
    await anyio.Path(gate).touch()
