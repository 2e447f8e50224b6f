import json
import threading
from typing import Any

import anyio
import pytest

from mcp_hub.errors import StartFailed
from mcp_hub.types import CacheHint, Era, JsonObject, Kind, Snapshot
from mcp_hub.upstreams.lists import list_reader
from mcp_hub.upstreams.lists.list_reader import Listed, ListLimits, list_kinds, prepared
from tests.unit.upstreams.scripted import Script, Server, answering, talking, together
from tests.unit.wire.raw_lines import WAIT

pytestmark = pytest.mark.anyio

TOOL, RESOURCE, TEMPLATE, PROMPT = Kind.TOOL, Kind.RESOURCE, Kind.TEMPLATE, Kind.PROMPT
LIST = "tools/list"
EVERY: JsonObject = {"tools": {}, "resources": {}, "prompts": {}}


async def listed(
    script: Script,
    *kinds: Kind,
    capabilities: dict[str, Any] | None = None,
    limits: ListLimits | None = None,
    era: Era = Era.HANDSHAKE,
    silence: float | None = None,
) -> dict[Kind, Listed]:
    async with talking(era, **({"tools": {}} if capabilities is None else capabilities)) as (peer, server):
        asked = list_kinds(peer, set(kinds or Kind), limits or ListLimits(), silence)
        return await together(script(server), asked)


def names(found: Listed) -> list[str]:
    return [json.loads(raw)["name"] for raw in found.raws]


def page(*entries: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"name": name} for name in entries], **more}


async def test_only_what_is_announced_is_asked_for_and_first_pages_together() -> None:
    async def script(server: Server) -> None:
        asked = [await server.line() for _ in range(3)]
        methods = ["tools/list", "resources/list", "resources/templates/list"]
        assert [request["method"] for request in asked] == methods
        for request, key in reversed(list(zip(asked, ("tools", "resources", "resourceTemplates"), strict=True))):
            await server.send(id=request["id"], result={key: [{"name": key}]})

    found = await listed(script, capabilities={"tools": {}, "resources": {}})
    assert {kind: names(one) for kind, one in found.items()} == {
        TOOL: ["tools"],
        RESOURCE: ["resources"],
        TEMPLATE: ["resourceTemplates"],
    }


@pytest.mark.parametrize("capabilities", [{}, {"logging": {}}])
async def test_server_that_announces_no_list_is_asked_once_for_its_tools(capabilities: JsonObject) -> None:
    script = answering((LIST, page("a", nextCursor="1")), (LIST, page("b")))
    async with talking(Era.HANDSHAKE, **capabilities) as (peer, server):
        found = await together(script(server), list_kinds(peer, set(Kind), ListLimits(), None))
        assert names(found[TOOL]) == ["a", "b"]
        assert found[TOOL].warnings == ["the server does not announce tools in its capabilities, and lists some"]
        assert peer.info.capabilities == {**capabilities, "tools": {}}, "from now on its list is read as any other"


@pytest.mark.parametrize(
    "answer", ['"error":{"code":-32601,"message":"no"}', '"result":{"tools":[]}', '"result":{"tools":7}', None]
)
async def test_server_without_lists_need_not_answer(answer: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_reader, "_UNANNOUNCED", 0.05)
    assert await listed(answering((LIST, answer)), capabilities={}) == {}


async def test_definitions_stay_as_they_were_written() -> None:
    text = r'"result":{"tools":[ {"name" : "a", "n": 1.10, "t":"\u0041"}, 7, null]}'
    found = await listed(answering((LIST, text)), TOOL)
    assert found[TOOL].raws == [rb'{"name" : "a", "n": 1.10, "t":"\u0041"}', b"7", b"null"]


@pytest.mark.parametrize("cursor", ["", 'x"y', 2, 0, -1, 2.5, 10**20])
async def test_pages_are_followed_and_any_text_or_number_is_a_cursor(cursor: object) -> None:
    async def script(server: Server) -> None:
        assert (await server.answer(LIST, page("a", nextCursor="1")))["params"] == {}
        assert (await server.answer(LIST, page("b", nextCursor=cursor)))["params"] == {"cursor": "1"}
        assert (await server.answer(LIST, page("c")))["params"] == {"cursor": cursor}

    found = await listed(script, TOOL)
    assert names(found[TOOL]) == ["a", "b", "c"] and found[TOOL].warnings == []


@pytest.mark.parametrize("cursor", [True, {}, [1]])
async def test_cursor_of_another_kind_ends_the_list_with_a_warning(cursor: object) -> None:
    found = await listed(answering((LIST, page("a", nextCursor=cursor))), TOOL)
    said = "the cursor of the next page is neither a text nor a number; stopped after 1 entry"
    assert names(found[TOOL]) == ["a"] and found[TOOL].warnings == [said]


@pytest.mark.parametrize(
    ("result", "form"), [('{"tools":null}', "null"), ("{}", "missing"), ('{"tools":{}}', "{}"), ('{"x":1}', "missing")]
)
async def test_list_that_is_null_or_absent_is_empty_with_a_warning(result: str, form: str) -> None:
    found = await listed(answering((LIST, f'"result":{result}')), TOOL)
    assert found[TOOL].raws == [] and found[TOOL].warnings == [f'"tools" is {form} in the answer, and counts as empty']


async def test_to_a_modern_server_every_page_carries_the_envelope_and_the_least_hint_counts() -> None:
    async def script(server: Server) -> None:
        first = await server.answer("tools/list", page("a", nextCursor="1", ttlMs=50, cacheScope="public"))
        second = await server.answer("tools/list", page("b", ttlMs=9, cacheScope="public"))
        for request in (first, second):
            assert request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"

    assert (await listed(script, TOOL, era=Era.MODERN))[TOOL].hint == CacheHint(9, True)


@pytest.mark.parametrize(
    ("members", "hint"),
    [
        ({"ttlMs": 5}, CacheHint(5, False)),
        ({"ttlMs": -5, "cacheScope": "public"}, CacheHint(0, True)),
        ({"ttlMs": "5", "cacheScope": "PUBLIC"}, CacheHint(0, False)),
        ({"ttlMs": 10**30, "cacheScope": ["public"]}, CacheHint(0, False)),
    ],
)
async def test_a_hint_that_makes_no_sense_grants_nothing(members: dict[str, Any], hint: CacheHint) -> None:
    assert (await listed(answering((LIST, page("a", **members))), TOOL))[TOOL].hint == hint


@pytest.mark.parametrize(
    ("pages", "limits", "warning"),
    [
        (["a1", "b2", "c1"], ListLimits(), "the same cursor came twice; stopped after 3 entries"),
        (["a1", "b2", "c3"], ListLimits(pages=3), "more than 3 pages; the rest is left out"),
        (["ab1", "cd2"], ListLimits(entries=3), "more than 3 entries; the rest is left out"),
    ],
)
async def test_long_or_endless_list_is_cut_with_a_warning(pages: list[str], limits: ListLimits, warning: str) -> None:
    steps = [(LIST, page(*shown[:-1], nextCursor=shown[-1])) for shown in pages]
    script = answering(*steps, ("close", None))  # nobody asks for a page that would not be used
    found = (await listed(script, TOOL, limits=limits))[TOOL]
    assert names(found) == ["a", "b", "c"] and found.warnings == [warning]


@pytest.mark.parametrize("before", [(), ("a",)], ids=["first page", "second page"])
@pytest.mark.parametrize(
    "answer",
    ['"error":{"code":-32603,"message":"broken"}', '"result":{"tools":5}', '"result":{"tools":[', '"result":null'],
)
async def test_announced_tools_that_cannot_all_be_listed_are_a_failure(before: tuple[str, ...], answer: str) -> None:
    steps = [(LIST, page(name, nextCursor="1")) for name in before]
    with pytest.raises(StartFailed) as caught:
        await listed(answering(*steps, (LIST, answer)), TOOL)
    assert caught.value.code == "list_failed"


@pytest.mark.parametrize(("code", "warned"), [(-32601, False), (-32603, True)])
async def test_other_kinds_stay_empty_and_a_missing_method_is_nothing_special(code: int, warned: bool) -> None:
    async def script(server: Server) -> None:
        asked = [await server.line() for _ in range(4)]
        for request in asked:
            if request["method"] == "tools/list":
                await server.send(id=request["id"], result=page("a"))
            else:
                await server.send(id=request["id"], error={"code": code, "message": "no"})

    found = await listed(script, capabilities=EVERY)
    assert names(found[TOOL]) == ["a"]
    for kind in (RESOURCE, TEMPLATE, PROMPT):
        assert found[kind].raws == [] and bool(found[kind].warnings) == warned


BAD_PAGES = [
    '"error":{"code":-32603,"message":"broken"}',
    '"error":{"code":-32601,"message":"no such method"}',
    '"error":{"code":1}',
    '"result":{"tools":5}',
    '"result":7',
]


@pytest.mark.parametrize("answer", BAD_PAGES)
async def test_at_the_start_the_pages_before_a_bad_one_are_kept_with_a_warning(answer: str) -> None:
    script = answering((LIST, page("a", nextCursor="1")), (LIST, page("b", nextCursor="2")), (LIST, answer))
    found = (await listed(script, TOOL, silence=WAIT))[TOOL]
    (warning,) = found.warnings
    assert names(found) == ["a", "b"]
    assert warning.startswith("tools/list failed: ") and warning.endswith("; stopped after 2 entries")


async def test_at_the_start_a_silent_page_is_left_for_later_and_what_was_read_stays() -> None:
    script = answering((LIST, page("a", nextCursor="1")), (LIST, None), ("notifications/cancelled", None))
    found = (await listed(script, TOOL, silence=0.05))[TOOL]
    assert names(found) == ["a"] and found.is_late
    assert found.warnings == ["tools/list: no answer within 0.05 s; it is asked for again"]


async def test_at_the_start_silent_kinds_share_their_time_and_take_no_tool_away() -> None:
    async def script(server: Server) -> None:
        asked = {request["method"]: request["id"] for request in [await server.line() for _ in range(4)]}
        await anyio.sleep(0.2)  # four times what the others have: it counts from when the tools are there
        await server.send(id=asked["tools/list"], result=page("a"))
        await server.send(id=asked["resources/templates/list"], result={"resourceTemplates": [{"name": "b"}]})
        abandoned = {(await server.line())["params"]["requestId"] for _ in range(2)}
        assert abandoned == {asked["resources/list"], asked["prompts/list"]}

    found = await listed(script, capabilities=EVERY, silence=0.05)
    assert {kind for kind, one in found.items() if one.is_late} == {RESOURCE, PROMPT}
    assert names(found[TOOL]) == ["a"] and names(found[TEMPLATE]) == ["b"]


async def test_a_server_that_goes_meanwhile_has_failed_whatever_was_asked() -> None:
    with pytest.raises(StartFailed) as caught:
        await listed(answering(("prompts/list", None), ("close", None)), capabilities={"prompts": {}})
    assert caught.value.code == "closed_output"


async def test_long_lists_are_made_ready_in_a_thread_and_short_ones_are_not() -> None:
    prepared_in: list[tuple[str, int]] = []

    def prepare(snapshot: Snapshot) -> None:
        prepared_in.append((threading.current_thread().name, len(snapshot.lists[TOOL])))

    limits = ListLimits(prepare=prepare)
    for count in (0, 249, 250, 1000):
        snapshot = Snapshot("a", Era.MODERN, {TOOL: tuple(b'{"name":"t%d"}' % i for i in range(count)), PROMPT: ()})
        await prepared(snapshot, limits)
    assert [count for _, count in prepared_in] == [250, 1000]
    assert all(name != threading.main_thread().name for name, _ in prepared_in)


async def test_a_server_that_was_gone_before_it_was_asked_has_failed() -> None:
    async with talking(Era.HANDSHAKE, tools={}) as (peer, _):
        peer.wire.close("the session is unknown", "session_lost")
        with pytest.raises(StartFailed) as caught:
            await list_kinds(peer, {TOOL}, ListLimits(), None)
        assert caught.value.code == "session_lost"
