"""What the health routes say, to whom, and why a hub is not ready; behind the guard, in front of a hub that is told."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_hub.fronts.health import Health
from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.protocol.rest.servers import LastReload, ServerInfo
from mcp_hub.sessions.session import Caller
from mcp_hub.types import StoreState, UpstreamState
from tests.unit.fronts.rest_peer import exchange

READY, FAILED, OLD = UpstreamState.READY, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE
BACKING_OFF, STOPPED = UpstreamState.BACKING_OFF, UpstreamState.STOPPED
PATHS = ("/livez", "/healthz", "/readyz")
HOST = (b"host", b"localhost")
TOKENS = {"free": Caller("free"), "bound": Caller("bound", "small")}


class Told:
    """A hub that is as a test says."""

    def __init__(self) -> None:
        self.is_settled = True
        self.store: StoreState = "durable"
        self.unguarded = False
        self.known: dict[str, UpstreamState] = {"secret-name": READY}

    def is_unguarded(self) -> bool:
        return self.unguarded

    def states(self) -> Mapping[str, UpstreamState]:
        return self.known

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        return [ServerInfo(f"{name} of {profile}", state.value, 0) for name, state in self.known.items()]

    def last_reload(self, profile: str | None) -> LastReload | None:
        return LastReload("signal", "2026-01-01T00:00:00Z", False, [] if profile else ["servers.yaml:3: what is wrong"])


class Front:
    """The routes behind a guard, with tokens or without."""

    def __init__(self, *, tokens: bool = True) -> None:
        self.told = Told()
        self.health = Health(self.told, "1.2")
        guard = HttpAuth(TOKENS if tokens else {})
        self._endpoints = Endpoints(guard, {}, pages=self.health.routes)

    async def ask(
        self, target: str, *headers: tuple[bytes, bytes], method: str = "GET", token: str | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        sent = [*(headers or (HOST,)), *([(b"authorization", f"Bearer {token}".encode())] if token else [])]
        response = await exchange(self._endpoints, target, sent, method)
        return response.status, response.body, response.headers


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({}, []),
        ({"is_stopping": True}, ["stopping"]),
        ({"is_settled": False}, ["starting"]),
        ({"store": "memory"}, []),
        ({"store": "out_of_use"}, ["store_out_of_use"]),
        ({"states": []}, []),
        ({"states": [READY, FAILED, OLD]}, []),
        ({"states": [BACKING_OFF]}, []),
        ({"states": [STOPPED, FAILED]}, []),
        ({"states": [FAILED, OLD]}, ["no_server"]),
        (
            {"states": [FAILED], "is_stopping": True, "store": "out_of_use"},
            ["stopping", "store_out_of_use", "no_server"],
        ),
    ],
)
def test_what_a_hub_needs_to_be_ready(changed: dict[str, Any], codes: list[str]) -> None:
    told = Told()
    told.known = {str(number): state for number, state in enumerate(changed.get("states", [READY]))}
    told.is_settled, told.store = changed.get("is_settled", True), changed.get("store", "durable")
    health = Health(told, "1.2")
    if "is_stopping" in changed:
        health.close()
    assert [reason.code for reason in health.reasons()] == codes


async def test_readiness_follows_the_hub_through_its_life() -> None:
    front = Front()
    for change, is_ready in (
        ({"is_settled": False}, False),
        ({"is_settled": True}, True),
        ({"known": {"a": FAILED, "b": FAILED}}, False),
        ({"known": {"a": FAILED, "b": READY}}, True),
        ({"store": "out_of_use"}, False),
        ({"store": "durable"}, True),
    ):
        vars(front.told).update(change)
        assert (await front.ask("/readyz"))[:2] == ((200, b"ready\n") if is_ready else (503, b"not ready\n"))
    front.health.close()
    assert (await front.ask("/readyz"))[0] == 503


async def test_a_watchdog_that_gave_up_is_a_detail_of_a_hub_that_is_ready() -> None:
    front = Front(tokens=False)
    assert "warnings" not in json.loads((await front.ask("/readyz?verbose"))[1])
    front.told.unguarded = True
    status, body, _ = await front.ask("/readyz?verbose")
    shown = json.loads(body)
    assert status == 200 and [warning["code"] for warning in shown["warnings"]] == ["watchdog_gave_up"]
    assert (await front.ask("/readyz"))[:2] == (200, b"ready\n")


async def test_only_a_broken_store_makes_it_unhealthy_and_nothing_makes_it_dead() -> None:
    front = Front()
    front.told.is_settled, front.told.known = False, {"a": FAILED}
    front.health.close()
    assert (await front.ask("/healthz"))[:2] == (200, b"healthy\n")
    front.told.store = "out_of_use"
    assert (await front.ask("/healthz"))[:2] == (503, b"unhealthy\n")
    assert (await front.ask("/livez"))[:2] == (200, b"alive\n")


@pytest.mark.parametrize("path", PATHS)
async def test_a_bare_answer_is_for_everybody_and_names_nothing(path: str) -> None:
    front = Front()
    status, body, headers = await front.ask(path)
    assert status == 200 and b"secret" not in body and headers["cache-control"] == "no-store"
    wanted = (b"accept", b"application/json")
    status, body, headers = await front.ask(path, HOST, wanted)
    assert list(json.loads(body)) == ["status"] and headers["content-type"] == "application/json"
    head = await front.ask(path, HOST, wanted, method="HEAD")
    assert head[1] == b"" and head[2] == headers
    assert (await front.ask(path, method="POST"))[0] == 405


@pytest.mark.parametrize("path", PATHS)
async def test_details_take_a_token_where_there_are_tokens(path: str) -> None:
    front = Front()
    for token in (None, "wrong"):
        status, body, headers = await front.ask(f"{path}?verbose", token=token)
        assert status == 401 and b"secret" not in body and headers["www-authenticate"].startswith("Bearer")
    status, body, _ = await front.ask(f"{path}?verbose", token="free")
    shown = json.loads(body)
    assert status == 200 and shown["servers"] == [{"server": "secret-name of None", "state": "ready", "restarts": 0}]
    assert shown["reload"]["findings"] == ["servers.yaml:3: what is wrong"] and shown["store"] == "durable"
    shown = json.loads((await front.ask(f"{path}?a=b&verbose=1", token="bound"))[1])
    assert shown["servers"][0]["server"] == "secret-name of small" and shown["reload"]["findings"] == []
    assert (await Front(tokens=False).ask(f"{path}?verbose"))[0] == 200
