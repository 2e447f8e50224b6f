"""The fixture server says what changed, to whoever subscribed; and says odd things byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import Message, StdioClient, modern
from tests.interaction.fronts import ERAS, HANDSHAKE, Peer
from tests.upstreams.launch import SERVER, argv, events

pytestmark = pytest.mark.anyio

URI = "test://shared/info"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"


async def listen(c: StdioClient, id: str | int, **wanted: Any) -> None:
    """Open a subscription and see it acknowledged."""
    position = len(c.transcript)
    await c.send_request("subscriptions/listen", modern({"notifications": wanted}), id=id)
    await c.wait_for(lambda m: "acknowledged" in m.get("method", ""), after=position)


def heard(c: StdioClient, id: str | int) -> list[str]:
    """The last word of each notification of a subscription, after its acknowledgement."""
    mine = [m for m in c.notifications() if m["params"]["_meta"][SUBSCRIPTION_ID] == id]
    return [m["method"].rpartition("/")[2] for m in mine][1:]


async def test_subscriptions_of_a_session_come_and_go(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with StdioClient(argv(journal=log)) as c:
        await c.initialize()
        await c.call("touch", {"uri": URI})
        await c.request("resources/subscribe", {"uri": URI})
        await c.call("touch", {"uri": URI})
        await c.call("touch", {"uri": "test://other"})
        await c.request("resources/unsubscribe", {"uri": URI})
        await c.call("touch", {"uri": URI})
        await c.call("touch_unsubscribed", {"uri": "test://other"})
        assert [m["params"] for m in c.notifications(UPDATED)] == [{"uri": URI}, {"uri": "test://other"}]
    assert [event["uri"] for name in ("subscribed", "unsubscribed") for event in events(log, name)] == [URI, URI]


async def test_listeners_hear_what_they_asked_for_until_they_cancel(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with StdioClient(argv(era="modern", journal=log)) as c:
        await listen(c, 51, toolsListChanged=True)
        await listen(c, "51", resourceSubscriptions=[URI], resourcesListChanged=True, promptsListChanged=False)
        for tool, arguments in (
            ("add_tool", {"name": "t"}),
            ("add_resource", {"uri": "test://new"}),
            ("add_prompt", {"name": "p"}),
            ("touch", {"uri": URI}),
            ("remove_tool", {"name": "t"}),
            ("touch_unsubscribed", {"uri": "test://other"}),
        ):
            assert "result" in await c.call_modern(tool, arguments), tool
        assert heard(c, 51) == ["list_changed", "list_changed", "updated"]
        assert heard(c, "51") == ["list_changed", "updated", "updated"]
        await c.notify("notifications/cancelled", {"requestId": 51})
        await c.call_modern("add_tool", {"name": "t"})
        assert len(heard(c, 51)) == 3
        assert not [m for m in c.transcript if "method" not in m and m["id"] in (51, "51")]
    assert [(event["id"], event["notifications"]) for event in events(log, "listening")][0] == (
        51,
        {"toolsListChanged": True},
    )
    assert [event["id"] for event in events(log, "unlistened")] == [51]


@pytest.mark.parametrize("how", ["result", "cancelled", "error"])
async def test_server_can_end_every_subscription(how: str) -> None:
    async with StdioClient(argv(era="modern")) as c:
        await listen(c, "a", toolsListChanged=True)
        await listen(c, "b", toolsListChanged=True)
        assert (await c.call_modern("end_listens", {"how": how}))["result"]["content"][0]["text"] == '{"ended": 2}'
        await c.call_modern("add_tool", {"name": "t"})
        assert heard(c, "a") == (["cancelled"] if how == "cancelled" else [])
        answers: list[Message] = [m for m in c.transcript if "method" not in m and m["id"] in ("a", "b")]
        if how == "cancelled":
            cancelled = c.notifications("notifications/cancelled")
            assert [m["params"]["requestId"] for m in cancelled] == ["a", "b"]
            assert answers == []
        elif how == "error":
            assert [answer["error"]["code"] for answer in answers] == [-32603, -32603]
        else:
            (first, _) = (answer["result"] for answer in answers)
            assert (first["resultType"], first["_meta"][SUBSCRIPTION_ID]) == ("complete", "a")
        assert (await c.call_modern("end_listens", {"how": "?"}))["error"]["code"] == -32602


async def test_lists_change_with_and_without_a_word() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        peer = Peer(c, HANDSHAKE)
        await c.call("add_tool", {"name": "t", "quiet": True})
        await c.call("add_resource", {"uri": "test://new", "name": "n", "text": "new text"})
        await c.call("add_prompt", {"name": "p", "text": "new prompt"})
        assert [m["method"] for m in c.notifications()] == [
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
        ]
        (tool,) = [tool for tool in (await c.request("tools/list"))["result"]["tools"] if tool["name"] == "t"]
        assert "quiet" not in tool
        assert {"uri": "test://new", "name": "n"} in (await c.request("resources/list"))["result"]["resources"]
        read = await c.request("resources/read", {"uri": "test://new"})
        assert read["result"]["contents"][0]["text"] == "new text"
        prompt = await c.request("prompts/get", {"name": "p"})
        assert prompt["result"]["messages"][0]["content"]["text"] == "new prompt"
        for tool_name, arguments in (("remove_resource", {"uri": "test://new"}), ("remove_prompt", {"name": "p"})):
            assert "result" in await c.call(tool_name, arguments)
            assert (await c.call(tool_name, arguments))["error"]["code"] == -32602
        assert "test://new" not in await peer.names("resources/list", "resources", "uri")
        assert "p" not in await peer.names("prompts/list", "prompts")


async def test_floods_come_whole() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        await c.request("resources/subscribe", {"uri": URI})
        for kind in ("tools", "prompts", "resources"):
            await c.call("flood_changes", {"count": 500, "kind": kind})
            assert len(c.notifications(f"notifications/{kind}/list_changed")) == 500
        await c.call("flood_updates", {"count": 500})
        assert len(c.notifications(UPDATED)) == 500


# -- byte for byte


@pytest.mark.parametrize("era", ERAS)
async def test_errors_logs_and_progress_go_out_as_they_were_written(era: str) -> None:
    async with StdioClient(argv(era=era)) as c:
        peer = Peer(c, era)
        if era == HANDSHAKE:
            await c.initialize()
        error = '{"code":7,"message":"m","data":{"n":123456789012345678901234567890},"x":1.50}'
        assert (await peer.call("fails", {"json": error})).error == json.loads(error)
        log = '{"level":"loud","data":{"x":[1E+2]},"new":true}'
        assert (await peer.call("logs_raw", {"json": log})).params("notifications/message") == [json.loads(log)]
        progress = '{"progress":1.50,"progressToken":"$TOKEN","_meta":{"k":1}}'
        for token in ("t", 7):
            seen = await peer.call("progress_raw", {"json": progress}, token=token)
            assert seen.progress == [{"progress": 1.5, "progressToken": token, "_meta": {"k": 1}}]
        assert (await peer.call("progress_raw", {"json": progress})).progress == []


async def test_links_have_the_uris_that_were_given() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        found = (await c.call("links", {"uris": ["a:1", "b:2"], "embedded": ["c:3"]}))["result"]["content"]
        assert [item["type"] for item in found] == ["resource_link", "resource_link", "resource"]
        assert [item.get("uri") for item in found[:2]] == ["a:1", "b:2"]
        assert found[2]["resource"] == {"uri": "c:3", "mimeType": "text/plain", "text": "text of c:3"}


async def test_odd_definition_is_listed_byte_for_byte() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        (odd,) = [tool for tool in (await c.request("tools/list"))["result"]["tools"] if tool["name"] == "odd"]
        assert odd["inputSchema"]["properties"]["spelled"]["minimum"] == 1.5
        assert odd["inputSchema"]["$defs"]["count"]["maximum"] == 12345678901234567890123
        assert odd["x-unknown"]["big"] == -(2**70)
        assert (await c.call("odd", {"tree": {}}))["result"]["structuredContent"] == {"tree": {}}


# -- what it says of itself


async def test_help_names_every_tool_and_explains_every_option() -> None:
    async with StdioClient([*argv("--help")]) as c:
        await c.wait_closed()
        shown = b"\n".join(c.noise).decode()
    async with StdioClient(argv("--tasks-capability")) as c:
        await c.initialize()
        for name in await Peer(c, HANDSHAKE).names():
            assert f"  {name}(" in shown, name
    unexplained = [line for line in shown.splitlines() if line.startswith("  --") and line.split()[-1].startswith("--")]
    assert unexplained == []
    assert SERVER.name in shown
