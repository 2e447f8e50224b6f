"""Log messages of a server that belong to no call: they are in the hub's log, bounded and fit to be read."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog

from mcp_hub import masking
from mcp_hub.upstreams.peer.stray_messages import StrayMessages
from tests.unit.upstreams.scripted import talking

pytestmark = pytest.mark.anyio


@pytest.fixture
def told() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def params(**members: object) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in members.items()}


async def test_what_a_server_says_between_calls_is_in_the_hubs_log(told: list[Any]) -> None:
    async with talking() as (_, server):
        message = {"level": "critical", "logger": "db", "data": "the disk is full"}
        await server.send(method="notifications/message", params=message)
        await server.send(id=1, method="ping")
        await server.line()
    (entry,) = [entry for entry in told if entry["event"] == "upstream_log"]
    assert entry == {
        "event": "upstream_log",
        "log_level": "info",
        "upstream": "git",
        "severity": "critical",
        "logger": "db",
        "data": "the disk is full",
    }


async def test_what_is_no_warning_is_for_debugging(told: list[Any]) -> None:
    StrayMessages("s").note("notice", params(data={"rows": 3}))
    assert [(entry["log_level"], entry["data"]) for entry in told] == [("debug", '{"rows": 3}')]


async def test_it_is_short_and_shows_neither_secrets_nor_escapes(told: list[Any]) -> None:
    masking.learn(["s3cr3t-value"])
    try:
        StrayMessages("s").note("error", params(data="\x1b[31ms3cr3t-value " + "x" * 100_000))
    finally:
        masking.forget()
    (entry,) = told
    assert entry["data"].startswith('"\\u001b[31m*** xxx') and len(entry["data"]) == 500


async def test_a_flood_is_told_once(told: list[Any]) -> None:
    asides = StrayMessages("s")
    for _ in range(1000):
        asides.note("error", params(data="again"))
        asides.note("debug", params(data="again"))
    count = {level: sum(entry["log_level"] == level for entry in told) for level in ("info", "debug")}
    assert count == {"info": 21, "debug": 201}
    assert sum(entry["event"] == "upstream_log_floods" for entry in told) == 2
