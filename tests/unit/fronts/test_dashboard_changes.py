"""What an operator changes by the dashboard: overrides of tools, and nothing that could start a program."""

import difflib
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.onboarding.changes.written import ClientRecords, WrittenEntry
from mcp_hub.stores.server_logs import last_records
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, NARROW, OPERATOR, SSE, problem
from tests.upstreams.child import WAIT, until
from tests.upstreams.messages import rpc


def place(full: DashboardPeer) -> Path:
    return full.app.seen.config.with_name("servers.overrides.yaml")


async def override(full: DashboardPeer, **tools: Any) -> None:
    response = await full.post("/overrides", {"servers": {"local": tools}})
    assert response.status == 204, response.body


async def names(full: DashboardPeer) -> list[str]:
    return [tool["name"] for tool in (await full.get("/tools"))["tools"]]


async def test_overrides_hold_at_once_and_are_in_a_file_beside_the_configuration(full: DashboardPeer) -> None:
    before = full.app.seen.config.read_text()
    await override(full, echo={"hide": True}, big={"pin": True, "description": "Large."}, fail={"name": "failing"})
    listed = await names(full)
    assert "echo" not in listed and "failing" in listed and "fail" not in listed
    definitions = {tool["name"]: tool for tool in (await full.get("/v1/tools"))["tools"]}
    assert definitions["big"]["description"] == "Large."
    found = yaml.safe_load(place(full).read_text())["servers"]["local"]["per_tool"]
    assert found == {
        "echo": {"hide": True}, "big": {"description": "Large.", "pin": True}, "fail": {"name": "failing"}
    }  # fmt: skip
    assert place(full).stat().st_mode & 0o777 == 0o600
    assert full.app.seen.config.read_text() == before, "the user's own file is as it was"
    await override(full, echo={"hide": None}, big={"pin": None})
    assert "echo" in await names(full)
    assert (await full.get("/tools"))["overrides"] == {
        "local": {"big": {"description": "Large."}, "fail": {"name": "failing"}}
    }


async def test_what_is_not_an_override_leaves_everything_as_it_was(full: DashboardPeer) -> None:
    response = await full.post("/overrides", {"servers": {"local": {"echo": {"name": "x"}, "big": {"name": "x"}}}})
    problem(response, 422, "invalid_configuration")
    assert not place(full).exists(), "the first one leaves no file"
    await override(full, hold={"pin": True})
    before = place(full).read_bytes()
    wrong: list[dict[str, Any]] = [
        {"echo": {"fixed": {"text": "x"}}},
        {"echo": {"arguments": {}}},
        {"echo": {"name": "not a name"}},
        {"echo": {"annotations": {"readOnlyHint": True, "destructiveHint": True}}},
        {"echo": {"annotations": {"title": "Evil"}}},
        {"echo": {"name": "big"}, "big": {"name": "big"}},
    ]
    for tools in wrong:
        response = await full.post("/overrides", {"servers": {"local": tools}})
        assert response.status in (400, 422), response.body
        assert place(full).read_bytes() == before and "echo" in await names(full), tools


async def test_an_unknown_server_and_a_file_that_cannot_be_used_are_named(full: DashboardPeer) -> None:
    problem(await full.post("/overrides", {"servers": {"none": {"x": {"hide": True}}}}), 404, "unknown_server")
    place(full).write_text("servers: {local: {command: evil}}")
    response = await full.post("/overrides", {"servers": {"local": {"echo": {"hide": True}}}})
    assert "unknown key" in problem(response, 409, "invalid_configuration")["detail"]


async def test_characters_that_nobody_sees_are_written_as_escapes(full: DashboardPeer) -> None:
    names = ("a\u202eb", "a\u200bb", "a\U000e0041b")
    await override(full, **{name: {"description": f"of {name}"} for name in names}, echo={"description": "größer"})
    text = place(full).read_text()
    assert not set(text) & set("\u202e\u200b\U000e0041") and "\\u202E" in text
    kept = yaml.safe_load(text)["servers"]["local"]["per_tool"]
    assert kept["echo"] == {"description": "größer"} and {*names} < kept.keys()
    await override(full, **{name: {"description": None} for name in names})
    assert "größer" in place(full).read_text()


async def test_too_many_overrides_change_nothing(full: DashboardPeer) -> None:
    await override(full, **{f"tool_{at}": {"hide": True} for at in range(1500)})
    before = place(full).read_bytes()
    more: list[tuple[Any, str]] = [
        ({f"other_{at}": {"hide": True} for at in range(501)}, "overrides_too_large"),
        ({f"t{at}": {} for at in range(2001)}, "overrides_too_large"),
        ({f"other_{at}": {"description": "d" * 700} for at in range(320)}, "overrides_too_large"),
        ({"echo": {"description": "d" * (256 << 10)}}, "body_too_large"),
    ]
    for tools, code in more:
        problem(await full.post("/overrides", {"servers": {"local": tools}}), 413, code)
        assert place(full).read_bytes() == before
    await override(full, **{f"other_{at}": {"hide": True} for at in range(500)})
    await override(full, **{f"tool_{at}": {"hide": None} for at in range(1500)})
    await override(full, echo={"hide": True})
    assert "echo" not in await names(full)


async def test_calls_continue_while_overrides_are_written(full: DashboardPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long is done by worker threads, and is bounded: to look for tools with a name like those."""
    threads: list[int] = []
    replacing, calls_ended, replace = threading.Event(), threading.Event(), Path.replace

    def look(*_: object, **__: object) -> list[str]:
        threads.append(threading.get_ident())
        return []

    def replace_later(file: Path, target: Path) -> Path:
        if target == place(full):
            threads.append(threading.get_ident())
            replacing.set()
            assert calls_ended.wait(WAIT)
        return replace(file, target)

    monkeypatch.setattr(difflib, "get_close_matches", look)
    monkeypatch.setattr(Path, "replace", replace_later)
    tools = {f"tool_{at}": {"hide": True} for at in range(2000)}
    written = full.page("POST", "/overrides", {"servers": {"local": tools}})
    await until(replacing.is_set)
    for _ in range(3):
        assert (await full.call("echo", {"text": "x"}, token=None).ended()).status == 200
    assert not written.is_complete
    calls_ended.set()
    assert (await written.ended()).status == 204
    assert len((await full.get("/state"))["servers"]["unmatched"]) == 100
    assert (await full.get("/settings"))["settings"]
    assert 0 < len(threads) <= 200 and threading.get_ident() not in threads


async def first_listed(full: DashboardPeer) -> None:
    """Returns once it is written what the server listed first: a lock comes before the record."""
    await until(lambda: [name for name in files_of(full) if "/approvals/" in name and name.endswith(".json")])


UNKNOWN = ["none", "", "__proto__", "constructor", "hub", "../local"]


@pytest.mark.parametrize("action", ["reject", "approve"])
async def test_an_approval_of_what_does_not_wait_writes_nothing_and_says_so(full: DashboardPeer, action: str) -> None:
    await first_listed(full)
    before = files_of(full)
    for server in (*UNKNOWN, "local"):
        for tool in ("echo", "unknown", "prompt:x", "__proto__"):
            body = {"server": server, "tool": tool, "digest": "d", "action": action}
            code = "unknown_tool" if server == "local" else "unknown_server"
            assert problem(await full.post("/approvals", body), 404, code)["detail"]
        assert files_of(full) == before and not place(full).exists(), server


async def test_no_request_for_an_unknown_server_changes_anything(full: DashboardPeer) -> None:
    await first_listed(full)
    before = files_of(full)
    for server in UNKNOWN:
        problem(await full.post("/overrides", {"servers": {server: {"x": {"hide": True}}}}), 404, "unknown_server")
        assert (await full.post("/login", {"server": server})).status == 404
        assert files_of(full) == before, server


def files_of(full: DashboardPeer) -> dict[str, bytes]:
    """Every file beside the configuration and in the state folder."""
    root = full.app.seen.config.parent
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".jsonl"}


async def test_hints_of_a_tool_are_overridden_and_taken_back(full: DashboardPeer) -> None:
    async def hints() -> Any:
        found = {tool["name"]: tool for tool in (await full.get("/v1/tools"))["tools"]}
        return found["echo"].get("annotations")

    before = await hints()
    await override(full, echo={"annotations": {"readOnlyHint": True, "openWorldHint": False}})
    assert await hints() == {**(before or {}), "readOnlyHint": True, "openWorldHint": False}
    found = {one["path"]: one["origin"] for one in (await full.get("/settings"))["settings"]}
    assert found["servers.local.per_tool.echo.annotations.readOnlyHint"] == "overrides"
    await override(full, echo={"annotations": None})
    assert await hints() == before


async def test_settings_show_origins_and_no_secret(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True) as full:
        await override(full, echo={"hide": True})
        found = {one["path"]: (one["value"], one["origin"]) for one in (await full.get("/settings"))["settings"]}
        assert found["hub.prefix"] == ("never", "file") and found["hub.budget"] == ("8000", "default")
        assert found["servers.local.per_tool.echo.hide"] == ("true", "overrides")
        assert "hub.tokens" in found and ALICE not in str(found)


async def test_details_of_a_server_have_its_stderr_and_what_the_hub_says(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path) as full:
        assert await full.get("/server?server=local") == {"server": "local", "lines": []}
        problem(await full.page("GET", "/server?server=none").ended(), 404, "unknown_server")
        assert full.app.server_logs is not None
        full.app.server_logs.output("local", [b"a line", b"Bearer abcdef0123456789"])
        full.app.server_logs.event({"event": "upstream_exited", "level": "warning", "upstream": "local", "code": 1})
    (logs,) = (tmp_path / "state" / "logs").glob("*/")
    assert last_records(logs, "local", 2)[0].stderr is not None, "of three, the last two"
    async with dashboard_hub(tmp_path) as full:
        lines = (await full.get("/server?server=local"))["lines"]
    assert [(one["text"], one.get("level")) for one in lines] == [
        ("a line", None), ("Bearer ***", None), ("upstream_exited code=1", "warning")
    ]  # fmt: skip


async def test_a_client_that_lost_the_hub_is_shown_and_one_look_is_good_for_seconds(tmp_path: Path) -> None:
    file = tmp_path / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text("{}")
    ClientRecords(tmp_path / "state").add_entry(WrittenEntry("cursor", str(file)))
    async with dashboard_hub(tmp_path) as full:
        for text in ("{}", '{"mcpServers": {"mcp-hub": {}}}'):
            file.write_text(text)
            (here,) = [one for one in (await full.get("/installs"))["clients"] if one["state"] != "absent"]
            assert (here["client"], here["state"], here["path"]) == ("cursor", "lost", str(file))
            assert here["command"] == "mcp-hub install cursor --http"


async def test_clients_are_shown_with_what_they_are_listed(full: DashboardPeer) -> None:
    session = await full.session(token=None, name="claude-ai", version="3")
    call = rpc("tools/call", {"name": "echo", "arguments": {"text": "a"}}, id=2)
    assert (await full.ask("POST", "/mcp", call, headers=session, token=None)).status == 200
    (client,) = (await full.get("/clients"))["clients"]
    assert (client["name"], client["version"], client["era"], client["calls"]) == ("claude-ai", "3", "handshake", 1)
    assert "connected" not in client and client["tools"] >= 8
    current = (await full.get("/v1/tokens?client=claude-desktop"))["current"]
    assert (client["tools"], client["tokens"]) == (current["listed"], current["tokens"]), "one count at each place"

    async def connected() -> bool | None:
        state = (await full.get("/clients"))["clients"][0].get("connected")
        assert state is None or isinstance(state, bool)
        return state

    stream = full.start("GET", "/mcp", headers={**session, **SSE}, token=None)
    await until(lambda: stream.status == 200)
    assert await connected() is True
    stream.leave()
    await stream.ended()
    assert await connected() is False, "its client has left, though its session is kept"
    await full.ask("POST", "/mcp", {**call, "id": 3}, headers=session, token=None)
    assert await connected() is None, "it is back, without a stream"
    assert (await full.get("/state"))["calls"][0]["client"] == "claude-ai"
    await full.ask("DELETE", "/mcp", headers=session, token=None)
    assert await connected() is False


async def test_profiles_show_who_sees_what_to_operators(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True) as full:
        whole, narrow, elsewhere = (await full.get("/profiles"))["profiles"]
        assert (whole["name"], whole["principals"]) == (None, ["alice", "bob", "olga"])
        assert (narrow["name"], narrow["tools"], narrow["principals"]) == ("narrow", ["echo", "hold"], ["alice"])
        assert set(narrow["tools"]) < set(whole["tools"]) and 0 < narrow["tokens"] < whole["tokens"]
        for profile, token in ((whole, OPERATOR), (narrow, NARROW)):
            account = (await full.page("GET", "/v1/tokens", token=token).ended()).json
            assert profile["tokens"] == account["total"]["full"] == sum(t["tokens"]["full"] for t in account["tools"])
        assert elsewhere["servers"] == ["local"] and not elsewhere.get("clients")
        problem(await full.page("GET", "/profiles", token=ALICE).ended(), 403, "operator_required")
        assert (await full.page("GET", "/v1/prompts", token=ALICE).ended()).status == 200, "those that it may use"
