"""One server for each way to fail, all behind one hub: a call gets a typed error in time, the others an answer."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.bad_upstreams import AT_ONCE, BUSY, LOST, OVERDUE, UNAVAILABLE, echoes, listed
from tests.e2e.client import HttpClient
from tests.interaction.fronts import HANDSHAKE, Peer, Seen, connected, http_hub
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

GARBAGE = (
    "malformed", "truncated", "not-json", "null-result", "number-result", "neither", "both", "string-error", "float-id",
    "other-type-id", "no-id", "null-id", "duplicate-id", "no-jsonrpc", "array", "surrogate", "nan", "deep", "bad-utf8",
    "nul", "bom",
)  # fmt: skip
FAULTS: dict[str, list[str]] = {
    "noise": argv(mode="noise"),
    "inline": argv(mode="no-newline-noise"),
    "garbage": argv(mode="garbage-answer"),
    "badutf": argv(mode="bad-utf8"),
    "late": argv(mode="late"),
    "unknown": argv(mode="unknown-id"),
    "shut": argv(mode="close-stdout", on="env"),
    "deaf": argv(mode="stop-reading", on="env"),
    "long": argv(mode="long-line", on="env", bytes=3_000_000),
    "endless": argv(mode="endless-line", on="env", bytes=3_000_000),
    "loop": argv("--page-loop"),
    "good": argv(),
}
SILENT = ("garbage", "unknown", "deaf", "endless")
"""Those whose calls may run out of their time."""


@pytest.fixture(scope="module")
async def faults(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peer]:
    """A client of a hub in front of all of `FAULTS`; calls of the `SILENT` ones are limited to 1 s of silence."""
    root = tmp_path_factory.mktemp("faults")
    defaults = {"restart": {"intensity": 50, "period": "60s"}}
    settings = json.loads(servers_yaml(FAULTS, defaults=defaults, hub={"limits": {"line": "1MB"}}))
    for name in SILENT:
        settings["servers"][name]["timeout"] = "1s"
    async with http_hub(json.dumps(settings), root) as running, connected(running, HANDSHAKE) as peer:
        await listed(peer, *FAULTS.keys() - {"noise"})  # has a test of its own
        yield peer
        await echoes(peer, "good")


@pytest.mark.parametrize("text", ["[INFO] ready", "{ready}", '{"level":"info","msg":"up"}', "[1, 2]", "null", "7"])
@pytest.mark.first(3)
async def test_log_lines_on_stdout_are_no_answers(text: str, tmp_path: Path) -> None:
    """Many servers print one line or two, some as JSON, before the answer to the only request in flight."""
    command = " ".join(f"'{part}'" for part in argv(name="a"))
    script = tmp_path / "server.sh"
    script.write_text(f"#!/bin/sh\necho '{text}'\nexec {command}\n")
    script.chmod(0o755)
    async with http_hub(servers_yaml({"a": [str(script)]}), tmp_path) as running, connected(running, HANDSHAKE) as peer:
        await listed(peer, "a")
        await echoes(peer, "a")
        assert "backing_off" not in running.stderr


TRIES = 5
"""A call that need not run out of its 1 s does so on a busy machine, but not each time."""
UNREADABLE = ("not-json", "float-id", "no-id", "null-id", "both")
"""Those whose id cannot be read; the call may have to run out of its time."""


def is_overdue(seen: Seen) -> bool:
    return "error" in seen.answer and seen.error["code"] == OVERDUE


@pytest.mark.parametrize("variant", GARBAGE)
async def test_garbage_in_place_of_an_answer_ends_the_call_and_nothing_else(faults: Peer, variant: str) -> None:
    with anyio.fail_after(AT_ONCE):
        for _ in range(TRIES):
            seen = await faults.call("garbage_garble", {"variant": variant})
            if variant in UNREADABLE or not is_overdue(seen):
                break
    if variant == "null-id":
        assert seen.error["code"] == -32700 and "named no request" in seen.error["message"]
    elif "error" in seen.answer:
        assert seen.error["code"] in (LOST, OVERDUE, -32603, -1), seen.error
        assert seen.error["code"] != OVERDUE or variant in UNREADABLE, "at once where the id can be read"
        assert "garbage" in seen.error["message"] or variant in ("both", "string-error")
    else:
        assert isinstance(seen.result, dict)
    await echoes(faults, "garbage")
    await echoes(faults, "good")


async def test_garbage_with_other_calls_in_flight_leaves_them_alone(faults: Peer) -> None:
    seen: dict[str, Seen] = {}
    assert isinstance(faults.wire, HttpClient)

    async def call(name: str, arguments: Mapping[str, Any], key: str) -> None:
        seen[key] = await faults.call(name, arguments)

    with anyio.fail_after(AT_ONCE):
        for _ in range(TRIES):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, "garbage_slow", {"seconds": 0.5}, "slow")
                for variant in ("not-json", "no-id", "null-id", "malformed"):
                    tasks.start_soon(call, "garbage_garble", {"variant": variant}, variant)
            if not is_overdue(seen["slow"]):
                break
    assert "slept" in seen.pop("slow").text
    assert {one.error["code"] for one in seen.values()} <= {LOST, OVERDUE}


@pytest.mark.parametrize("name", ["long", "endless"])
async def test_line_over_the_limit_is_a_typed_error_and_the_next_call_works(faults: Peer, name: str) -> None:
    with anyio.fail_after(AT_ONCE):
        error = (await faults.call(f"{name}_env")).error
    assert error["code"] in ((LOST,) if name == "long" else (LOST, OVERDUE))
    if error["code"] == LOST:
        assert "limit" in error["message"]
    if name == "long":
        await echoes(faults, name)
    await echoes(faults, "good")


async def test_server_that_closes_its_output_is_lost_and_comes_back(faults: Peer) -> None:
    with anyio.fail_after(AT_ONCE):
        error = (await faults.call("shut_env")).error
    assert error["code"] == LOST
    await echoes(faults, "good")
    await echoes(faults, "shut")


async def test_server_that_stops_reading_costs_its_callers_their_time_limit(faults: Peer) -> None:
    for _ in range(3):
        with anyio.fail_after(AT_ONCE):
            error = (await faults.call("deaf_env")).error
        assert error["code"] in (OVERDUE, LOST, UNAVAILABLE, BUSY)
        assert "deaf" in error["message"]
        await echoes(faults, "good")


async def test_an_answer_to_nothing_that_was_asked_is_in_the_last_output_of_its_server(tmp_path: Path) -> None:
    text = servers_yaml({"unknown": argv(mode="unknown-id")})
    async with http_hub(text, tmp_path) as running, connected(running, HANDSHAKE) as peer:
        await listed(peer, "unknown")
        await echoes(peer, "unknown")
        error = (await peer.call("unknown_crash")).error
        assert error["code"] == LOST and "an answer to an unknown request" in error["message"]
