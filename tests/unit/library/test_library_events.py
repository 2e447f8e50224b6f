"""Events in a program: Python functions as sources, the iterator and its cursor."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from mcp_hub import Event, Hub, Registry, RpcError

pytestmark = pytest.mark.anyio

TIME = datetime(2026, 11, 30, 10, tzinfo=UTC)
registry = Registry()
limit = 3


@registry.event
async def builds(repo: str, cursor: str | None = None) -> AsyncIterator[Event]:
    """A build has ended."""
    for number in range(int(cursor or 0) + 1, limit + 1):
        yield Event({"repo": repo, "n": number}, f"{repo}-{number}", TIME, str(number))
    await anyio.sleep_forever()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    return {"servers": {"ci": {"local": f"{__name__}:registry"}}}


async def test_types_are_listed(settings: dict[str, object]) -> None:
    async with Hub.from_config(settings) as hub:
        (first,) = await hub.list_events()
        assert first["name"] == "ci_builds" and first["description"] == "A build has ended."
        assert list(first["inputSchema"]["properties"]) == ["repo"]


async def test_events_come_in_order_and_a_cursor_continues(settings: dict[str, object]) -> None:
    with anyio.fail_after(30):
        async with Hub.from_config(settings) as hub:
            cursors: list[str] = []
            async with aclosing(hub.events("ci_builds", {"repo": "a"}, after="st_0")) as events:
                assert (await anext(events))["truncated"] is True, "a cursor that nobody gave"
            async with aclosing(hub.events("ci_builds", {"repo": "b"}, after="st_0")) as events:
                for number in (1, 2, 3):
                    event = await anext(events)
                    cursors.append(event["cursor"])
                    assert (event["eventId"], event["data"]) == (f"b-{number}", {"repo": "b", "n": number})
                    assert event["timestamp"] == "2026-11-30T10:00:00+00:00"
            async with aclosing(hub.events("ci_builds", {"repo": "b"}, after=cursors[0])) as events:
                assert (await anext(events))["eventId"] == "b-2"
        async with Hub.from_config(settings) as hub:  # a later program
            async with aclosing(hub.events("ci_builds", {"repo": "b"}, after=cursors[1])) as events:
                event = await anext(events)
                assert event["eventId"] == "b-3" and "truncated" not in event


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("ci_bilds", {}, "Did you mean ci_builds"),
        ("ci_builds", {}, "repo: required"),
    ],
)
async def test_refusal_is_raised(
    settings: dict[str, object], name: str, arguments: dict[str, object], reason: str
) -> None:
    async with Hub.from_config(settings) as hub:
        with pytest.raises(RpcError, match=reason):
            await anext(hub.events(name, arguments))


async def test_hub_that_closes_ends_its_iterators(settings: dict[str, object]) -> None:
    ended: list[BaseException] = []
    waiting = anyio.Event()

    async def follow(hub: Hub) -> None:
        try:
            async for _ in hub.events("ci_builds", {"repo": "c"}, after="st_0"):
                waiting.set()
        except RpcError as error:
            ended.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with Hub.from_config(settings) as hub:
                tasks.start_soon(follow, hub)
                await waiting.wait()
    assert "stopping" in str(ended[0])
