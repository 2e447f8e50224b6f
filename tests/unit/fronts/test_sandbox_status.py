"""The sandbox of a server in the state of a running hub: who sees which part, its bounds, and its life."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.fronts.metrics import Metrics
from mcp_hub.masking import learn
from mcp_hub.protocol.rest.servers import SecondConnection, ServerInfo
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, ELSEWHERE, NARROW, OPERATOR
from tests.unit.sandbox.confined import needs_sandbox
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.processes, needs_sandbox()]

SERIES = ("mcp_hub_server_sandboxed", "mcp_hub_sandbox_refusals_total")
PLACES = ("/v1/servers", "/v1/servers/boxed", "/api/v1/servers", "/api/state")


def boxed(folder: Path, **more: Any) -> dict[str, Any]:
    """A server that ends at once; it may write `folder/data`."""
    (folder / "data").mkdir(exist_ok=True)
    rule = {"net": ["api.example.com", "git.example.com:8443"], "write": [str(folder / "data")]}
    return {
        "command": sys.executable, "args": ["-c", ""], "restart": {"intensity": 0}, "sandbox": rule, **more
    }  # fmt: skip


@asynccontextmanager
async def boxed_hub(folder: Path, **servers: Any) -> AsyncIterator[DashboardPeer]:
    """A hub whose servers have ended, at its beginning and at its end."""
    async with dashboard_hub(folder, tokens=True, servers=servers) as peer:
        await ended(peer)
        yield peer
        await ended(peer)


async def ended(peer: DashboardPeer) -> None:
    with anyio.fail_after(WAIT):
        while any(status.state not in ("ready", "failed", "disabled") for status in peer.app.hub.statuses()):
            await peer.app.changes.wait(peer.app.changes.version)


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with boxed_hub(tmp_path, boxed=boxed(tmp_path)) as peer:
        yield peer


def refuse(peer: DashboardPeer, *targets: str) -> None:
    refusals = peer.app.operations.applier.sources.sandboxes["boxed"].refusals
    for target in targets:
        refusals.note("host", target, "the host is not in its rule", target)


async def state(peer: DashboardPeer) -> Any:
    """The sandbox as operators see it."""
    return (await peer.ask("GET", "/v1/servers/boxed", token=OPERATOR)).json["sandbox"]


def series(peer: DashboardPeer, profile: str | None = None) -> list[str]:
    """The samples about sandboxes."""
    text = Metrics(peer.app.operations.watch, "1").rendered(profile)[0].decode()
    return [line for line in text.splitlines() if line.startswith(SERIES)]


async def test_rule_and_refusals_are_in_the_state_of_the_server(peer: DashboardPeer, tmp_path: Path) -> None:
    refuse(peer, "evil.example:8443", "evil.example:8443", "other.example")
    sandbox = await state(peer)
    assert (sandbox["state"], sandbox["net"], sandbox["refused"]) == ("on", "hosts", 3)
    assert sandbox["hosts"] == ["api.example.com", "git.example.com:8443"]
    lists = {"read": [], "write": [str(tmp_path / "data")], "net": sandbox["hosts"], "sockets": []}
    assert sandbox["lists"] == lists
    assert str(tmp_path / "data") in sandbox["write"] and "/usr" in sandbox["read"]
    assert sandbox["home"] in sandbox["write"] and not any(path.startswith("/etc/") for path in sandbox["read"])
    assert sandbox["traffic"] == {"connections": 0, "open": 0, "sent": 0, "received": 0}
    newest, before = sandbox["latest"]
    assert (newest["target"], newest["key"], newest["entry"]) == ("other.example", "net", "other.example")
    assert (before["target"], before["count"], before["kind"]) == ("evil.example:8443", 2, "host")
    assert series(peer) == [f'{name}{{server="boxed"}} {value}' for name, value in zip(SERIES, (1.0, 3.0), strict=True)]


async def test_names_in_a_sandbox_are_for_operators(peer: DashboardPeer, tmp_path: Path) -> None:
    refuse(peer, "canary.example")
    names = (b"canary", b"api.example.com", str(tmp_path).encode(), b"/usr")
    for place in PLACES:
        seen = (await peer.ask("GET", place, token=OPERATOR)).body
        assert all(name in seen for name in names), place
        for token in (ALICE, NARROW):
            body = (await peer.ask("GET", place, token=token)).body
            assert b'"refused":1' in body and not any(name in body for name in names), body
        body = (await peer.ask("GET", place, token=ELSEWHERE)).body
        assert b"sandbox" not in body and b"refused" not in body, body
    for code in ("sandbox_refused", "sandbox_rule", "sandbox_unsupported"):  # a start that failed says why, by names
        second = SecondConnection("failed", reason="refused canary.example", code=code)
        reason = "refused /home/ann/canary"
        whole = ServerInfo("boxed", "failed", 0, reason=reason, code=code, second=second, given_up=3)
        assert whole.without_output().given_up == 0, "it counts what happens to others, too"
        assert b"canary" not in msgspec.json.encode(whole.without_output())
    assert series(peer, "elsewhere") == [] and series(peer, "narrow") == series(peer)


CRASHES_LATER = """
import json, os, sys
mark = os.path.join(os.environ["HOME"], "mark")
if os.path.exists(mark):
    open(os.environ["NEEDED"]).close()
open(mark, "w").close()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        info = {"name": "s", "version": "1"}
        known = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        answers = {"initialize": {"result": known}, "tools/list": {"result": {"tools": tools}}}
        answer = answers.get(message["method"], {"error": {"code": -32601, "message": "unknown"}})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


async def test_reasons_name_paths_to_operators_alone(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(CRASHES_LATER)
    canary = tmp_path / "canary file"
    canary.touch()
    servers = {
        "once": boxed(
            tmp_path, args=["-S", str(tmp_path / "server.py")], env={"NEEDED": str(canary)}, sandbox={"write": []}
        ),
        "gone": {"command": str(canary / "prog")}, "texts": {"skills": str(canary / "skills")},
        "never": boxed(tmp_path, args=["-c", f"open({str(canary)!r})"], sandbox="on"),
    }  # fmt: skip
    async with dashboard_hub(tmp_path, tokens=True, prefix="always", servers=servers) as peer:
        await ended(peer)
        await peer.ask("POST", "/v1/servers/once/restart", {}, token=OPERATOR)
        await ended(peer)
        calls: list[tuple[str, str, object]] = [
            ("POST", f"/v1/tools/{name}/call", {"arguments": {}}) for name in ("once_t", "never_t", "gone_t")
        ]
        states = [
            ("GET", place, None) for place in ("/v1/servers", "/v1/servers/once", "/api/state", "/readyz?verbose")
        ]
        for method, place, body in [*calls, *states]:
            for token in (OPERATOR, ALICE):
                seen = (await peer.ask(method, place, body, token=token)).body
                assert (b"canary file" in seen) is (token == OPERATOR), (place, seen)
                assert b"command_not_found" in seen or b"sandbox_refused" in seen, (place, seen)
                if token == ALICE:
                    assert str(tmp_path).encode() not in seen and b"the operator" in seen, (place, seen)


async def test_texts_of_the_server_are_bounded_escaped_and_masked(peer: DashboardPeer) -> None:
    learn(["a-secret-of-this-hub"])
    note = peer.app.operations.applier.sources.sandboxes["boxed"].refusals.note
    rows = {
        "\x1b[31m\u202eevil\n.example": "\\x1b[31m\\u202eevil\\n.example",
        "/tmp/a-secret-of-this-hub/x": "/tmp/***/x",
        "/" + "x" * 100_000: "/" + "x" * 255,
        "\x1b" * 1000: "\\x1b" * 64,
    }
    for number in range(100):
        note("host", f"h{number}.example", "no")
    for path, text in rows.items():
        note("socket", path, path, path)
        newest = (await state(peer))["latest"][0]
        assert newest["target"] == newest["reason"] == text and "entry" not in newest, newest
    note("rate", "boxed", "more than 128 connections at a time")
    sandbox = await state(peer)
    assert (len(sandbox["latest"]), sandbox["refused"]) == (64, 105)
    assert "key" not in sandbox["latest"][0]
    assert len(json.dumps(sandbox)) < 64 * 1024


async def test_open_page_hears_of_a_refusal(peer: DashboardPeer) -> None:
    cursor = (await peer.get("/state"))["cursor"]
    feed = peer.page("GET", f"/feed?after={cursor}")
    await feed.has(b'"boxed"')
    refuse(peer, "late.example")
    await feed.has(b"late.example")
    feed.leave()


async def test_refusals_stay_as_long_as_the_rule_does(peer: DashboardPeer, tmp_path: Path) -> None:
    config = tmp_path / "servers.yaml"
    document = json.loads(config.read_text())

    async def reloaded(**entry: Any) -> Any:
        document["servers"]["boxed"] |= entry
        config.write_text(json.dumps(document))
        assert (await peer.ask("POST", "/v1/reload", {}, token=OPERATOR)).status == 200
        await ended(peer)
        return (await peer.ask("GET", "/v1/servers/boxed", token=OPERATOR)).json.get("sandbox")

    refuse(peer, "evil.example")
    assert (await reloaded(per_tool={"x": {"hide": True}}))["refused"] == 1
    await peer.ask("POST", "/v1/servers/boxed/restart", {}, token=OPERATOR)
    await ended(peer)
    assert (await state(peer))["refused"] == 1
    assert (await reloaded(sandbox={"net": ["evil.example"]}))["refused"] == 0
    assert await reloaded(enabled=False) is None
    assert (await reloaded(enabled=True))["refused"] == 0
    assert await reloaded(sandbox="off") is None and series(peer) == []


async def test_server_without_a_sandbox_is_reported_without_the_member(tmp_path: Path) -> None:
    async with boxed_hub(tmp_path, boxed=boxed(tmp_path, sandbox="off")) as peer:
        for place in PLACES:
            assert b"sandbox" not in (await peer.ask("GET", place, token=OPERATOR)).body
        assert b"sandbox" not in Metrics(peer.app.operations.watch, "1").rendered(None)[0]


async def test_server_without_its_preferred_sandbox_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.sandbox.confinement.landlock_abi", lambda: 0)
    servers = {"boxed": boxed(tmp_path, sandbox="prefer"), "strict": boxed(tmp_path, sandbox="on")}
    async with boxed_hub(tmp_path, **servers) as peer:
        sandbox = await state(peer)
        assert sandbox["state"] == "absent" and "no Landlock" in sandbox["reason"] and "write" not in sandbox
        strict = (await peer.ask("GET", "/v1/servers/strict", token=OPERATOR)).json
        assert (strict["code"], strict["sandbox"]["state"]) == ("sandbox_unsupported", "pending")
        assert 'mcp_hub_server_sandboxed{server="boxed"} 0.0' in series(peer)
        assert not [line for line in series(peer) if "strict" in line and "sandboxed" in line]
