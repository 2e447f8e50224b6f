"""A whole hub behind its HTTP front in memory, as the dashboard asks it; the configuration is a real file."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from mcp_hub.app.build import open_app
from mcp_hub.app.http import HttpFront
from mcp_hub.config.load.load import load
from mcp_hub.onboarding.changes.written import client_installs
from mcp_hub.onboarding.servers_file.proposals import PageEditor
from mcp_hub.protocol.rest.overview import DashboardMode
from tests.unit.fronts import local_hub
from tests.unit.fronts.rest_peer import ALICE, BOB, ELSEWHERE, NARROW, OPERATOR, Response, RestPeer

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
TOKENS = [
    {"token": ALICE, "principal": "alice"},
    {"token": BOB, "principal": "bob"},
    {"token": NARROW, "principal": "alice", "profile": "narrow"},
    {"token": ELSEWHERE, "principal": "alice", "profile": "elsewhere"},
    {"token": OPERATOR, "principal": "olga", "operator": True},
]


class DashboardPeer(RestPeer):
    """Sends requests as the page does: with the operator token, unless another is given."""

    front: HttpFront

    def page(self, method: str, path: str, body: object = None, **options: Any) -> Response:
        """A request below `/api` that is under way."""
        return self.start(method, f"/api{path}", body, **{"token": self.front.operator, **options})

    async def get(self, path: str, **options: Any) -> Any:
        response = await self.page("GET", path, **options).ended()
        assert response.status == 200, response.body
        return response.json

    async def post(self, path: str, body: object, **options: Any) -> Response:
        return await self.page("POST", path, body, **options).ended()


@asynccontextmanager
async def dashboard_hub(
    root: Path, *, tokens: bool | list[Any] = False, mode: DashboardMode = "full",
    servers: dict[str, Any] | None = None, is_local: bool = True, is_public: bool = False, **hub: Any,
) -> AsyncIterator[DashboardPeer]:  # fmt: skip
    """A running hub with local tools and the `servers`, whose dashboard is in that mode by default.

    `is_public`: strangers may know of the profile `narrow`.
    """
    local_hub.current = tools = local_hub.Tools()  # type: ignore[attr-defined]  # what `local:` below finds
    http = {"allowed_origins": ["https://friend.example"], "cors": ["https://reader.example"], **hub.pop("http", {})}
    settings = {
        "servers": {"local": {"local": f"{local_hub.__name__}:current.registry"}, **(servers or {})},
        "profiles": {
            "narrow": {"tools": {"allow": ["echo", "hold"]}, "public": is_public},
            "elsewhere": {"servers": ["local"]},
        },
        "hub": {
            "prefix": "never", "store": {"type": "memory"}, "http": http,
            "tokens": TOKENS if tokens is True else tokens or [], **hub,
        },
    }  # fmt: skip
    path = root / "servers.yaml"
    path.write_text(json.dumps(settings))
    async with (
        open_app(load(path, {}), {"MCP_HUB_STATE_DIR": str(root / "state")}, has_executors=True) as app,
        anyio.create_task_group() as tasks,
    ):
        env = {"HOME": str(root), "MCP_HUB_STATE_DIR": str(root / "state")}
        installs, open_editor = partial(client_installs, env), partial(PageEditor, path, env)
        front = HttpFront(
            app, None, is_local=lambda settings: is_local, dashboard=mode, installs=installs, open_editor=open_editor
        )
        peer = DashboardPeer(app, tools, front.rest, front.endpoints, tasks)
        peer.front = front
        await app.hub.catalog.settled()
        yield peer
        tools.go.set()
        tasks.cancel_scope.cancel()
