"""A hub with an authorization server in this process, and the browser of a person."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

from mcp_hub.fronts.http.authorization.grants import AccessGrants
from tests.e2e.consents import PUBLIC, TOKENS
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub


@asynccontextmanager
async def hub(root: Path, authorization: Any = True, **more: Any) -> AsyncIterator[DashboardPeer]:
    http = {"public_url": PUBLIC, "authorization": authorization}
    async with dashboard_hub(root, tokens=more.pop("tokens", TOKENS), http=http, mode="off", **more) as peer:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.front.run)
            yield peer
            tasks.cancel_scope.cancel()


def browser(peer: DashboardPeer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=peer.front.endpoints), base_url=PUBLIC)


def grants_of(peer: DashboardPeer) -> AccessGrants:
    assert peer.front.auth.clients is not None
    found = peer.front.auth.clients._grants
    assert found is not None
    return found
