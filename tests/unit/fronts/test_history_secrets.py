"""Secrets of every kind, put into calls in every way: none is in a view of the history, an export or its file."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from mcp_hub import masking
from mcp_hub.app.logins import grant_store
from mcp_hub.cli import main
from mcp_hub.errors import RpcError
from mcp_hub.upstreams.auth.grants import ClientRegistration, grant_key
from tests.unit.fronts.dashboard_peer import TOKENS, DashboardPeer, dashboard_hub
from tests.unit.upstreams.authorization import a_grant
from tests.upstreams.child import WAIT
from tests.upstreams.messages import rpc

MARK = "c4n4ry"
KINDS = ("env", "header", "bearer", "access", "refresh", "token")
"""A server's environment, its headers and bearer token, both tokens of a login, and a token of the hub."""
SECRETS = {kind: f"{MARK}-{kind}-0123456789abcdef" for kind in KINDS}
FAR = "http://127.0.0.1:9/mcp"
VIEWS = (
    *("/v1/history?limit=1000", "/v1/history?limit=1000&details=1", "/v1/history?failed=1", "/state", "/clients"),
    "/v1/history/figures?span=1h",
)
STATUSES = {"completed": 4, "tool_error": 4, "failed": 4, "cancelled": 2}
"""Of the calls of `every_way`."""


async def with_secrets(root: Path) -> dict[str, Any]:
    """Servers that are never started, and a login to one of them."""
    login = {"url": f"{FAR}?login", "start": "lazy"}
    store, key = grant_store(root / "state"), grant_key(login["url"], ClientRegistration())
    async with store.locked(key, WAIT):
        with store.writing(key) as commit:
            commit(a_grant("http://127.0.0.1:9", SECRETS["access"], SECRETS["refresh"]))
    masking.forget()
    return {
        "env": {"command": "no-such", "env": {"API_KEY": SECRETS["env"]}, "start": "lazy"},
        "header": {"url": FAR, "headers": {"X-Key": SECRETS["header"]}, "start": "lazy"},
        "bearer": {"url": FAR, "bearer": SECRETS["bearer"], "start": "lazy"},
        "login": login,
    }


async def every_way(hub: DashboardPeer, secret: str) -> None:
    """Calls that succeed, fail and are cancelled, with the secret in arguments, results, reasons and names."""
    across_the_cut = "x" * (4096 - len(secret) // 2) + secret
    for text in (f"my {secret}", across_the_cut, json.dumps({"key": secret}), f"{secret}{secret[::-1]}{secret}"):
        await hub.call("echo", {"text": text}).ended()
        await hub.call("fail", {"text": text}).ended()
        error = {"code": -32000, "message": f"no row for {text}", "data": {"why": text}}
        hub.tools.refusals = [RpcError(f"no row for {text}", raw=json.dumps(error).encode())]  # as a server sent it
        await hub.call("refuse", {"text": text}).ended()
    sent = await hub.session("2024-11-05", name=f"client {secret}", version=secret)
    params = {"name": "hold", "arguments": {"nonce": secret}, "_meta": {"progressToken": secret}}
    running = hub.start("POST", "/mcp", rpc("tools/call", params, id=2), headers=sent)
    await hub.tools.has_come(secret)
    cancel = rpc("notifications/cancelled", {"requestId": 2, "reason": f"because of {secret}"})
    assert (await hub.ask("POST", "/mcp", cancel, headers=sent)).status == 202
    await running.ended()
    detached = await hub.detached("hold", {"nonce": f"{secret}!"})
    await hub.ask("DELETE", f"/v1/streams/{detached}")
    await hub.until(detached, "cancelled")


async def seen(root: Path, views: list[str]) -> list[dict[str, Any]]:
    """The calls of a hub, and what it shows of them."""
    servers, tokens = await with_secrets(root), [*TOKENS, {"token": SECRETS["token"], "principal": "team"}]
    async with dashboard_hub(root, servers=servers, tokens=tokens, store={}, history={"arguments": "full"}) as hub:
        with anyio.fail_after(WAIT):
            while masking.hide(SECRETS["refresh"]) == SECRETS["refresh"]:  # it looks for logins once a second
                await anyio.lowlevel.checkpoint()
        for secret in SECRETS.values():
            await every_way(hub, secret)
        await hub.app.journal.flush()
        calls: list[dict[str, Any]] = (await hub.get(VIEWS[1]))["calls"]
        pages = (*VIEWS, *(f"/v1/history/{call['id']}" for call in calls))
        views += [json.dumps(await hub.get(page)) for page in pages]
        rest = await hub.ask("GET", VIEWS[1], token=hub.front.operator)  # the same without the page
        assert len(rest.json["calls"]) == len(calls)
        views.append(rest.body.decode())
    return calls


def test_secrets_of_every_kind_are_in_no_view_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[str] = []
    with capture_logs():  # they are slow, and not looked at here
        calls = anyio.run(seen, tmp_path, views)
    assert Counter(call["status"] for call in calls) == {key: n * len(KINDS) for key, n in STATUSES.items()}
    assert all("***" in json.dumps(call) for call in calls)
    reasons = [call["message"] for call in calls if call["status"] in ("failed", "cancelled") and "message" in call]
    assert len(reasons) >= 5 * len(KINDS) and sum("***" in reason for reason in reasons) >= 4 * len(KINDS)
    masking.forget()  # commands read the same file
    for name, value in {"STATE_DIR": "state", "CONFIG": "servers.yaml"}.items():
        monkeypatch.setenv(f"MCP_HUB_{name}", str(tmp_path / value))
    for command in (["--json", "--limit", "1000"], [], ["export"], *(["show", call["id"]] for call in calls[::14])):
        done = CliRunner().invoke(main, ["history", *command, "--local"])
        assert done.exit_code == 0 and len(done.output) > 100, done.output
        views.append(done.output)
    views += [path.read_bytes().decode("latin-1") for path in (tmp_path / "state").glob("history.db*")]
    assert [view[at - 200 : at + 50] for view in views if (at := view.find(MARK)) >= 0] == []
