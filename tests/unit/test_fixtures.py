"""The fixtures that other tests rely on: the server program is a true MCP server, and the raw clients see the wire."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import PromptReference, ResourceTemplateReference

from tests.e2e.client import PeerClosed, SseEvent, SseParser, StdioClient, modern, running_hub, until
from tests.upstreams.launch import argv, events, received

pytestmark = pytest.mark.anyio

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


def text_of(answer: dict[str, Any]) -> str:
    (content,) = answer["result"]["content"]
    return str(content["text"])


# -- eras


@pytest.mark.parametrize("era", ["handshake", "both"])
@pytest.mark.parametrize("version", HANDSHAKE)
async def test_initialize_negotiates_every_handshake_version(era: str, version: str) -> None:
    async with StdioClient(argv(era=era)) as c:
        answer = await c.initialize(version)
        assert answer["result"]["protocolVersion"] == version
        assert await c.close() == 0


async def test_unknown_version_is_answered_with_the_newest_that_the_server_speaks() -> None:
    async with StdioClient(argv(max_version="2025-06-18")) as c:
        assert (await c.initialize("2025-11-25"))["result"]["protocolVersion"] == "2025-06-18"


async def test_handshake_server_knows_no_discovery_and_wants_initialize_first() -> None:
    async with StdioClient(argv(era="handshake")) as c:
        assert (await c.request("server/discover", modern()))["error"]["code"] == -32601
        assert (await c.request("tools/list"))["error"]["code"] == -32602
        assert (await c.request("ping"))["result"] == {}
        await c.initialize()
        assert "resultType" not in (await c.request("tools/list", modern()))["result"]
        missing = await c.request("resources/read", {"uri": "test://nowhere"})
        assert missing["error"]["code"] == -32002


async def test_modern_server_wants_the_envelope_and_marks_its_results() -> None:
    async with StdioClient(argv(era="modern", name="m", ttl_ms=5, cache_scope="private")) as c:
        refused = await c.initialize()
        assert refused["error"]["code"] == -32022
        assert refused["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        assert (await c.request("tools/list"))["error"]["code"] == -32602
        assert (await c.request("tools/list", modern(version="2099-01-01")))["error"]["code"] == -32022
        assert (await c.request("ping", modern()))["error"]["code"] == -32601
        assert (await c.request("tools/list", modern(log_level="loud")))["error"]["code"] == -32602
        discovered = (await c.request("server/discover", modern()))["result"]
        assert discovered["supportedVersions"] == ["2026-07-28"]
        for result in (discovered, (await c.request("tools/list", modern()))["result"]):
            assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 5, "private")
            assert result["_meta"][SERVER_INFO]["name"] == "m"
        missing = await c.request("resources/read", modern({"uri": "test://nowhere"}))
        assert missing["error"]["code"] == -32602


async def test_server_of_both_eras_answers_each_request_in_its_own() -> None:
    async with StdioClient(argv(era="both")) as c:
        assert "resultType" in (await c.request("tools/list", modern()))["result"]
        await c.initialize()
        assert "resultType" in (await c.request("tools/list", modern()))["result"]
        assert "resultType" not in (await c.request("tools/list"))["result"]


async def test_discovery_can_kill_the_server_or_meet_silence() -> None:
    async with StdioClient(argv(era="handshake", discover="exit")) as c:
        with pytest.raises(PeerClosed):
            await c.request("server/discover", modern())
        assert await c.wait() == 1
    async with StdioClient(argv(era="handshake", discover="silent")) as c:
        await c.send_request("server/discover", modern(), id="probe")
        await c.initialize()
        assert all(message["id"] != "probe" for message in c.transcript)


# -- what crosses the wire


async def test_progress_comes_in_order_before_the_result_and_only_with_a_token() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        await c.call("progress", {"n": 3})
        assert c.notifications() == []
        await c.call("progress", {"n": 3, "nonce": "x"}, token="t")
        params = [message["params"] for message in c.transcript[-4:-1]]
        assert params == [{"progressToken": "t", "progress": i, "total": 3, "message": f"x {i}"} for i in (1, 2, 3)]
        await c.call("progress_odd", {"values": [-5, -5, '"12"', "1e400", "null"], "after": [9]}, token=7)
        await c.wait_for(lambda message: message.get("params", {}).get("progress") == 9)
        odd = [message["params"]["progress"] for message in c.notifications()[3:]]
        assert odd == [-5, -5, "12", float("inf"), None, 9]


async def test_cancelled_call_gets_no_answer_and_blocks_nobody(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with StdioClient(argv(journal=log)) as c:
        await c.initialize()
        waiting = [await c.send_request("tools/call", call, id=call["id"]) for call in CANCELLABLE]
        assert text_of(await c.call("echo", {"text": "meanwhile"})) == '{"text": "meanwhile"}'
        for request_id in waiting:
            await c.notify("notifications/cancelled", {"requestId": request_id})
        await until(lambda: len(events(log, "cancelled")) == 2)
        assert await c.close() == 0
    assert not [message for message in c.transcript if message.get("id") in waiting]
    assert {event["id"] for event in events(log, "cancelled")} == {"a", 77}
    assert [m["params"]["requestId"] for m in received(log, "notifications/cancelled")] == ["a", 77]


CANCELLABLE: tuple[dict[str, Any], ...] = (
    {"id": "a", "name": "slow", "arguments": {"seconds": 600}},
    {"id": 77, "name": "wait_cancel", "arguments": {"nonce": "w"}},
)


async def test_results_and_errors_go_out_verbatim() -> None:
    body = '{"content":[{"type":"hologram","x":123456789012345678901234567890}],"new":{"s":"\\ud83d"}}'
    async with StdioClient(argv()) as c:
        await c.initialize()
        answer = await c.call("raw", {"json": body})
        assert answer["result"] == json.loads(body)
        assert (await c.call("echo", {"text": "\ud83d"}))["result"]["structuredContent"] == {"text": "\ud83d"}
        error = {"code": -32042, "message": "odd", "data": {"deep": [1, None]}}
        assert (await c.call("error", error))["error"] == error
        assert (await c.call("tool_error", {"text": "no"}))["result"]["isError"] is True
        assert len(text_of(await c.call("big", {"bytes": 3_000_000}))) == 3_000_000
        meta = json.loads(text_of(await c.call_modern("meta", token="t", **{"example.org/x": 1})))
        assert (meta["progressToken"], meta["example.org/x"]) == ("t", 1)
        assert (await c.call("nobody"))["error"]["code"] == -32602


async def test_log_messages_follow_the_level_of_session_or_request() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        await c.call("log", {"level": "debug", "data": 1})
        await c.request("logging/setLevel", {"level": "warning"})
        await c.call("log", {"level": "info", "data": 2})
        await c.call("log", {"level": "error", "data": {"n": 3}, "logger": "db", "n": 2})
        await c.call_modern("log", {"level": "error", "data": 4})
        await c.call_modern("log", {"level": "error", "data": 5}, log_level="error")
        data = [message["params"]["data"] for message in c.notifications("notifications/message")]
        assert data == [1, {"n": 3}, {"n": 3}, 5]


async def test_list_changes_reach_the_session_and_the_listeners_that_asked() -> None:
    async with StdioClient(argv(era="both")) as c:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["test://shared/info"], "unknown": True}
        await c.send_request("subscriptions/listen", modern({"notifications": wanted}), id="l")
        acknowledged = await c.wait_for(lambda message: "acknowledged" in message.get("method", ""))
        del wanted["unknown"]
        assert acknowledged["params"] == {"_meta": {SUBSCRIPTION_ID: "l"}, "notifications": wanted}
        await c.call_modern("add_tool", {"name": "fresh"})
        await c.call_modern("touch", {"uri": "test://shared/info"})
        await c.call_modern("flood", {"what": "prompts", "n": 3})
        methods = [message["method"].rpartition("/")[2] for message in c.notifications()]
        assert methods == ["acknowledged", "list_changed", "updated"]
        assert all(message["params"]["_meta"] == {SUBSCRIPTION_ID: "l"} for message in c.notifications())
        await c.notify("notifications/cancelled", {"requestId": "l"})
        await c.initialize()
        await c.call("remove_tool", {"name": "fresh"})
        assert c.notifications()[-1] == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        assert "fresh" not in [tool["name"] for tool in (await c.request("tools/list"))["result"]["tools"]]


async def test_pages_continue_after_the_empty_cursor() -> None:
    async with StdioClient(argv("--page", "7")) as c:
        await c.initialize()
        names, cursors, params = [], [], {}
        while True:
            page = (await c.request("tools/list", params))["result"]
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
            cursors.append(page["nextCursor"])
        assert cursors == ["", *(str(at) for at in range(14, len(names), 7))]
        assert len(names) == len(set(names)) > 14
        assert (await c.request("tools/list", {"cursor": "x"}))["error"]["code"] == -32602
    async with StdioClient(argv("--page-loop")) as c:
        await c.initialize()
        for params in ({}, {"cursor": "again"}):
            assert (await c.request("tools/list", params))["result"]["nextCursor"] == "again"


async def test_tools_of_a_file_are_served_byte_for_byte(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text('[{"name":"a","inputSchema":{"minimum":1.50,\n"x":1e400}},{"description":"nameless"},7]')
    async with StdioClient(argv(tools_json=file)) as c:
        await c.initialize()
        assert (await c.request("tools/list"))["result"]["tools"] == json.loads(file.read_text())
        assert text_of(await c.call("a", {"k": 1})) == '{"k": 1}'


async def test_journal_shows_what_arrived_as_it_was_written(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with StdioClient(argv(journal=log)) as c:
        await c.initialize()
        await c.send_raw(b'{"jsonrpc":"2.0", "id":1.0,"method":"ping"}\nnot json \xff\n')
        await c.wait_for(lambda message: message.get("error", {}).get("code") == -32700)
        assert await c.close() == 0
    assert b'{"jsonrpc":"2.0", "id":1.0,"method":"ping"}' in log.read_bytes()
    assert [m.get("id") for m in received(log)] == [1, None, 1.0]
    assert len(events(log, "start")) == len(events(log, "eof")) == 1


# -- misbehaviour


async def test_crashes_leave_their_reason() -> None:
    async with StdioClient(argv(mode="crash-start")) as c:
        await c.wait_stderr("boom: cannot open database")
        assert await c.wait() == 3
    async with StdioClient(argv(mode="crash-after", count=2, exit_code=0)) as c:
        await c.initialize()
        await c.call("echo", {"text": "first"})
        with pytest.raises(PeerClosed):
            await c.call("echo", {"text": "second"})
        assert await c.wait() == 0


@pytest.mark.parametrize("mode", ["noise", "no-newline-noise"])
async def test_noise_surrounds_every_message(mode: str) -> None:
    async with StdioClient(argv(mode=mode)) as c:
        await c.send_request("ping", id=1)
        await until(lambda: c.noise)
        await c.close()
    assert bool(c.transcript) == (mode == "noise")
    assert (b'"id":1,"result":{}' in c.noise[0]) == (mode == "no-newline-noise")


@pytest.mark.parametrize("mode", ["hang-start", "hang-list"])
async def test_hanging_servers_still_read(mode: str, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with StdioClient(argv(mode=mode, journal=log)) as c:
        await c.send_request("ping")
        await c.send_request("tools/list")
        assert await c.close() == 0
    assert len(c.transcript) == (mode == "hang-list")
    assert [m["method"] for m in received(log)] == ["ping", "tools/list"]


async def test_faulty_answers_look_as_described() -> None:
    async with StdioClient(argv(mode="late", on="meta")) as c:
        await c.initialize()
        await c.call("echo", {"text": "x"})
        await c.request("ping")
        assert [message["id"] for message in c.transcript] == [1, 2, 2, 3]
    async with StdioClient(argv(mode="unknown-id")) as c:
        await c.initialize()
        await c.call("echo", {"text": "x"})
        assert [message["id"] for message in c.transcript] == [1, 999_999_999, 2]
    async with StdioClient(argv(mode="bad-utf8")) as c:
        await c.initialize()
        await c.send_request("tools/call", {"name": "echo", "arguments": {"text": "x"}})
        assert await c.close() == 0
    assert b"\xff" in c.noise[0]
    async with StdioClient(argv(mode="long-line", bytes=3_000_000)) as c:
        await c.initialize()
        assert len(text_of(await c.call("echo"))) == 3_000_000 - len(
            '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":""}]}}\n'
        )
    async with StdioClient(argv(mode="endless-line", bytes=3_000_000)) as c:
        await c.initialize()
        await c.send_request("tools/call", {"name": "echo"})
        assert await c.close() == 0
    assert c.noise == [b"x" * 3_000_000]


async def test_garbage_comes_instead_of_the_answer_to_garble_alone() -> None:
    async with StdioClient(argv(mode="garbage-answer")) as c:
        await c.initialize()
        listed = (await c.request("tools/list"))["result"]["tools"]
        (garble,) = [tool for tool in listed if tool["name"] == "garble"]
        for variant in garble["inputSchema"]["properties"]["variant"]["enum"]:
            before = len(c.noise) + len(c.transcript)
            await c.send_request("tools/call", {"name": "garble", "arguments": {"variant": variant}})
            await c.call("echo", {"text": "fine"})
            assert len(c.noise) + len(c.transcript) == before + 2, variant


async def test_closed_stdout_is_not_the_end_of_the_process() -> None:
    async with StdioClient(argv(mode="close-stdout", count=2)) as c:
        await c.initialize()
        await c.call("echo", {"text": "first"})
        with pytest.raises(PeerClosed):
            await c.call("echo", {"text": "second"})
        assert c.returncode is None
        assert await c.close() == 0


@pytest.mark.parametrize(("mode", "code"), [("ignore-eof", -signal.SIGTERM), ("ignore-term", -signal.SIGKILL)])
async def test_servers_that_will_not_go_are_killed(mode: str, code: int, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with StdioClient(argv(mode=mode, journal=log)) as c:
        await c.request("ping")
        assert c.process.stdin is not None
        await c.process.stdin.aclose()
        await until(lambda: events(log, "eof"))
        c.process.terminate()
        if mode == "ignore-term":
            c.kill()
        assert await c.wait() == code


async def test_nothing_of_the_process_group_survives_the_client() -> None:
    async with StdioClient(argv()) as c:
        await c.initialize()
        pid = json.loads(text_of(await c.call("spawn", {"keeps_stdout": True})))["pid"]
        os.kill(pid, 0)
        assert await c.close() == 0
        os.kill(pid, 0)
    await until(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has reaped yet does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


# -- the SDK's own client


@pytest.mark.parametrize(("era", "mode"), [("handshake", "legacy"), ("handshake", "auto"), ("modern", "auto")])
async def test_sdk_client_accepts_the_server(era: str, mode: str) -> None:
    command, *args = argv("--page", "3", era=era, name="sdk")
    seen: list[float] = []

    async def on_progress(value: float, total: float | None, message: str | None) -> None:
        seen.append(value)

    with anyio.fail_after(20):
        async with Client(StdioServerParameters(command=command, args=args), mode=mode) as client:
            assert (await client.list_tools()).next_cursor == ""
            echoed = await client.call_tool("echo", {"text": "hi"})
            assert echoed.structured_content == {"text": "hi"}
            await client.call_tool("progress", {"n": 3}, progress_callback=on_progress)
            resources = (await client.list_resources()).resources
            for resource in resources:
                (contents,) = (await client.read_resource(resource.uri)).contents
                assert contents.uri == resource.uri
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "test://sdk/item/{id}"
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet", "fixed", "asking"]
            greeting = await client.get_prompt("greet", {"who": "you"})
            assert greeting.messages[0].content.text == "Hello, you, from sdk"
    assert seen == [1, 2, 3]


async def test_sdk_client_completes_both_kinds_of_reference() -> None:
    command, *args = argv(name="sdk")
    cases = (
        (PromptReference(type="ref/prompt", name="greet"), {"name": "who", "value": "al"}, ["alan", "alice", "albert"]),
        (
            ResourceTemplateReference(type="ref/resource", uri="test://sdk/item/{id}"),
            {"name": "id", "value": "2"},
            ["2", "20"],
        ),
    )
    with anyio.fail_after(20):
        async with Client(StdioServerParameters(command=command, args=args)) as client:
            for ref, argument, values in cases:
                assert (await client.complete(ref, argument)).completion.values == values


# -- the HTTP side of the client


@pytest.mark.parametrize("size", [1, 2, 1000])
async def test_event_stream_is_read_in_any_portions(size: int) -> None:
    stream = b': hello\r\nid: 1\r\nevent: message\r\ndata: {"a":\r\ndata: 1}\r\n\r\n\nid:2\rdata:\r\rretry: 5\ndata\n\n'
    parser = SseParser()
    found = [event for i in range(0, len(stream), size) for event in parser.feed(stream[i : i + size])]
    assert found == [SseEvent('{"a":\n1}', "1", "message"), SseEvent("", "2"), SseEvent("", retry=5)]
    assert parser.comments == ["hello"]
    assert found[0].message == {"a": 1}


async def test_hub_that_does_not_start_is_reported_with_its_stderr() -> None:
    with pytest.raises(AssertionError, match="the hub did not start"):
        async with running_hub("[", "--no-such-option"):
            raise NotImplementedError
