"""What a client is sent of changed lists and updated resources, and when."""

import json
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import anyio
import pytest

from mcp_hub import session_views
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.fronts.mcp import subscriptions as module
from mcp_hub.fronts.mcp.subscriptions import Announcer
from mcp_hub.types import JsonObject, Kind
from tests.unit.fronts.small_hub import Hub
from tests.unit.wire.raw_lines import WAIT

ID = "io.modelcontextprotocol/subscriptionId"
A, B = ("git", "x:a"), ("git", "x:b")


@pytest.fixture
async def hub() -> Hub:
    return Hub()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DEBOUNCE", 0.001)
    monkeypatch.setattr(module, "_LONGEST", 0.0)  # a slow machine may take long to compare lists


async def sent(announcer: Announcer) -> list[tuple[str, Any]]:
    """The next notifications, as they are on their way: what of, and the params."""
    messages = await heard(announcer)
    announcer.sent()
    return messages


async def heard(announcer: Announcer) -> list[tuple[str, Any]]:
    with anyio.fail_after(WAIT):
        frames = await announcer.next()
    decoded: Iterator[JsonObject] = map(json.loads, frames)
    return [(message["method"].removeprefix("notifications/"), message.get("params")) for message in decoded]


async def silent(announcer: Announcer) -> None:
    with anyio.move_on_after(0.02) as scope:
        raise AssertionError(await announcer.next())
    assert scope.cancelled_caught


async def test_a_list_is_announced_when_it_differs_from_what_the_client_knows(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client())
    hub.source.offers(Kind.TOOL, "a")
    hub.source.offers(Kind.TEMPLATE, "x:{a}")
    hub.source.offers(Kind.RESOURCE, "x:a")
    assert await sent(announcer) == [("tools/list_changed", None), ("resources/list_changed", None)]
    await silent(announcer)
    hub.source.offers(Kind.TOOL, "a")
    await silent(announcer)
    hub.source.offers(Kind.PROMPT, "b")
    assert await sent(announcer) == [("prompts/list_changed", None)]


async def test_a_list_that_changed_and_changed_back_is_not_announced(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client())
    hub.source.offers(Kind.TOOL, "a")
    hub.source.offers(Kind.TOOL)
    await silent(announcer)


async def test_a_list_that_the_client_has_read_from_its_start_is_not_announced(hub: Hub) -> None:
    session = hub.client()
    announcer = Announcer(hub.port, session)
    hub.source.offers(Kind.TOOL, "a", "b")
    hub.source.offers(Kind.PROMPT, *(f"p{number:02}" for number in range(20)))
    hub.port.views.page(session, Kind.TOOL, None)
    page = json.loads(hub.port.views.page(hub.client(), Kind.PROMPT, None))
    hub.port.views.page(session, Kind.PROMPT, page["nextCursor"])
    assert await sent(announcer) == [("prompts/list_changed", None)]
    hub.source.offers(Kind.TOOL, "a")
    assert await sent(announcer) == [("tools/list_changed", None)]


async def test_news_for_others_is_passed_over_once(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="x:a"))
    hub.changes.note(B, "x:b")
    hub.changes.bump()
    await silent(announcer)
    assert announcer._position == (hub.changes.version, hub.changes.noted)


async def test_unsent_notifications_are_there_the_next_time(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="x:a"))
    hub.source.offers(Kind.TOOL, "a")
    hub.changes.note(A, "x:a")
    first = await heard(announcer)
    hub.changes.note(A, "x:a")
    assert await heard(announcer) == first == [("tools/list_changed", None), ("resources/updated", {"uri": "x:a"})]
    announcer.sent()
    await silent(announcer)


async def test_an_update_is_sent_to_its_subscriber_once_and_whole(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="hub://git/x:a"))
    meta = json.dumps({"k": 1, ID: 7})
    for number in range(100):
        hub.changes.note(A, "x:a", f'{{"uri":"x:a","n":1.10,"at":{number},"_meta":{meta}}}'.encode())
    hub.changes.note(B, "x:b")
    (message,) = await sent(announcer)
    assert message == ("resources/updated", {"uri": "hub://git/x:a", "n": 1.10, "at": 99, "_meta": {"k": 1}})
    await silent(announcer)


async def test_an_update_of_a_part_has_the_uri_under_which_the_part_can_be_read(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="hub://git/x:a"))
    hub.changes.note(A, "x:a/b", b'{"uri":"x:a/b"}')
    assert await sent(announcer) == [("resources/updated", {"uri": "x:a/b"})]


async def test_an_update_of_a_hidden_resource_is_not_sent() -> None:
    hub = Hub(Filter(deny=("x:secret*", "x:a/secret*")))
    hub.source.offers(Kind.RESOURCE, "x:a", "x:secret")
    announcer = Announcer(hub.port, hub.client(a="x:a", secret="x:secret"))
    hub.changes.note(("git", "x:secret"), "x:secret")
    hub.changes.note(A, "x:a/secret/b", b'{"title":"T"}')
    await silent(announcer)
    hub.changes.note(A, "x:a/b")
    assert await sent(announcer) == [("resources/updated", {"uri": "x:a/b"})]


async def test_a_uri_that_means_something_else_by_now_is_replaced_by_one_that_does_not(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="hub://elsewhere/x:a"))
    hub.source.offers(Kind.RESOURCE, "hub://elsewhere/x:a", "x:a")
    await sent(announcer)
    hub.changes.note(A, "x:a")
    assert await sent(announcer) == [("resources/updated", {"uri": "x:a"})]


async def test_a_client_that_fell_behind_learns_that_everything_was_updated(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="x:a", b="x:b"))
    for number in range(2000):
        hub.changes.note(("other", f"y:{number}"), f"y:{number}")
    assert await sent(announcer) == [("resources/updated", {"uri": "x:a"}), ("resources/updated", {"uri": "x:b"})]
    await silent(announcer)


async def test_a_listener_gets_only_what_it_asked_for_with_its_id_on_everything(hub: Hub) -> None:
    methods = frozenset({"notifications/prompts/list_changed"})
    announcer = Announcer(hub.port, hub.client(a="x:a"), methods, b'"7"')
    hub.source.offers(Kind.TOOL, "a")
    await silent(announcer)
    hub.source.offers(Kind.PROMPT, "a")
    hub.changes.note(A, "x:a", b'{"_meta":{"k":1}}')
    assert await sent(announcer) == [
        ("prompts/list_changed", {"_meta": {ID: "7"}}),
        ("resources/updated", {"_meta": {"k": 1, ID: "7"}, "uri": "x:a"}),
    ]


# -- servers look whether the lists that a client is shown are old; it does not wait for that


async def test_a_list_has_its_servers_look_at_its_age_once_a_first_time(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_views, "_RENEWED", 0.0)
    hub.source.offers(Kind.TOOL, "add")
    client = hub.client()
    hub.port.views.page(client, Kind.PROMPT, None)
    hub.port.views.page(client, Kind.TOOL, None)
    hub.port.views.page(client, Kind.TOOL, None)
    hub.port.views.page(hub.client(), Kind.TOOL, None)
    assert hub.source.shown == [(Kind.PROMPT, True), (Kind.TOOL, True), (Kind.TOOL, False), (Kind.TOOL, True)]


async def test_lists_in_quick_succession_have_servers_look_once_unless_something_changed(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_views, "_RENEWED", 60.0)
    hub.source.offers(Kind.TOOL, "add")
    client = hub.client()
    hub.port.views.page(client, Kind.TOOL, None)
    for _ in range(3):
        hub.port.views.page(client, Kind.TOOL, None)
    assert hub.source.shown == [(Kind.TOOL, True), (Kind.TOOL, False)]
    hub.source.offers(Kind.TOOL, "add", "more")
    hub.port.views.page(client, Kind.TOOL, None)
    assert hub.source.shown[2:] == [(Kind.TOOL, False)]


@pytest.mark.parametrize(("took", "pause"), [(0.0, 0.0), (0.02, 0.4), (5.0, 1.0)])
async def test_lists_that_take_long_to_compare_are_compared_less_often(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, took: float, pause: float
) -> None:
    monkeypatch.setattr(module, "_LONGEST", 1.0)
    readings = iter([0.0, 10.0, 10.0 + took])
    monkeypatch.setattr(module, "perf_counter", lambda: next(readings))
    announcer = Announcer(hub.port, hub.client())
    hub.source.offers(Kind.TOOL, "a")
    assert await sent(announcer) == [("tools/list_changed", None)]
    assert announcer._due == pytest.approx(10.0 + took + pause)


async def test_updates_do_not_wait_for_lists_that_are_compared_later(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="x:a"))
    announcer._due = perf_counter() + 60
    hub.source.offers(Kind.TOOL, "a")
    await silent(announcer)
    for _ in range(2):
        hub.changes.note(A, "x:a")
        assert await sent(announcer) == [("resources/updated", {"uri": "x:a"})]
    await silent(announcer)
    announcer._due = 0.0
    assert await sent(announcer) == [("tools/list_changed", None)]
    await silent(announcer)


async def test_an_unsent_change_of_a_list_is_repeated_with_an_update_that_comes_later(hub: Hub) -> None:
    announcer = Announcer(hub.port, hub.client(a="x:a"))
    hub.source.offers(Kind.TOOL, "a")
    assert await heard(announcer) == [("tools/list_changed", None)]
    announcer._due = perf_counter() + 60
    hub.changes.note(A, "x:a")
    both = [("tools/list_changed", None), ("resources/updated", {"uri": "x:a"})]
    assert await sent(announcer) == both
    hub.changes.note(A, "x:a")
    assert await sent(announcer) == both[1:]


async def test_further_pages_and_skills_are_not_looked_at(hub: Hub) -> None:
    hub.source.offers(Kind.TOOL, *(f"t{number}" for number in range(15)))
    client = hub.client()
    page = json.loads(hub.port.views.page(client, Kind.TOOL, None))
    hub.port.views.page(client, Kind.TOOL, page["nextCursor"])
    hub.port.views.page(client, Kind.SKILL, None)
    assert hub.source.shown == [(Kind.TOOL, True)]
