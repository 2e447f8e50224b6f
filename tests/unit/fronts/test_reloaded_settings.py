"""Rights of callers follow the settings that hold now, also where a reload adds or removes all tokens."""

import json
from pathlib import Path
from typing import Any

from mcp_hub.app.http import _HttpAuthFactory
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.dashboard_peer import TOKENS, DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, OPERATOR
from tests.unit.test_auth_settings import settings, who

TOOL = {"name": "build", "inputSchema": {"type": "object"}}


async def asked(peer: DashboardPeer, method: str, path: str, token: str | None, body: Any = None) -> tuple[int, str]:
    """The status of the answer, and its code."""
    response = await peer.start(method, path, body, token=token).ended()
    return response.status, str(response.json.get("code", "")) if isinstance(response.json, dict) else ""


async def register(peer: DashboardPeer, token: str | None) -> tuple[int, str]:
    return await asked(peer, "PUT", "/v1/executors/w1", token, {"tools": [TOOL]})


async def reload_with(peer: DashboardPeer, root: Path, tokens: list[Any]) -> None:
    path = root / "servers.yaml"
    config = json.loads(path.read_text())
    config["hub"]["tokens"] = tokens
    path.write_text(json.dumps(config))
    done = await peer.app.reloader.reload("request")
    assert done.is_applied, done.errors


async def test_without_tokens_any_more_nobody_executes_or_operates(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True, is_local=False, http={"allow_public": True}) as peer:
        assert (await register(peer, ALICE))[0] == 200
        assert (await register(peer, None))[0] == 401
        await reload_with(peer, tmp_path, [])
        assert await register(peer, None) == (403, "token_required")
        assert (await asked(peer, "GET", "/v1/tools", None))[0] == 200
        assert await asked(peer, "POST", "/v1/reload", None, {}) == (403, "operator_required")


async def test_with_tokens_from_now_on_their_owners_execute(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, is_local=False, http={"allow_public": True}) as peer:
        assert await register(peer, None) == (403, "token_required")
        await reload_with(peer, tmp_path, TOKENS)
        assert (await register(peer, ALICE))[0] == 200
        assert (await asked(peer, "POST", "/v1/reload", OPERATOR))[0] == 200


async def test_callers_without_a_token_operate_the_hub_only_while_it_is_local() -> None:
    door = _HttpAuthFactory(None, is_local=lambda now: not now.hub.http.allow_public)
    callers = [await who(door.for_settings(settings(allow_public=public))) for public in (False, True, False)]
    assert [isinstance(caller, Caller) and caller.is_operator for caller in callers] == [True, False, True]
