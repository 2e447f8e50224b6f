"""A whole hub in this process, in front of Python functions that a test can hold up and look into."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcp_hub.app.build import App, open_app
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.upstreams.functions.registry import Progress, Registry, Result
from tests.upstreams.messages import CLIENT

__all__ = ["Tools", "hello", "local_hub"]


class Tools:
    """The tools of one hub; `held` and `cancelled` have the nonces of calls to `hold`, which goes on with `go`."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.held: list[str] = []
        self.cancelled: list[str] = []
        self.go = anyio.Event()
        for function in (self.echo, self.steps, self.hold, self.big):
            self.registry.tool(function)

    async def echo(self, text: str) -> str:
        return text

    async def steps(self, n: int) -> AsyncIterator[Progress | Result]:
        for i in range(1, n + 1):
            yield Progress(i, n)
        yield Result(f"{n} steps")

    async def hold(self, nonce: str) -> str:
        self.held.append(nonce)
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(nonce)
            raise
        return nonce

    async def big(self, size: int) -> str:
        return "x" * size


@asynccontextmanager
async def local_hub(root: Path, **limits: Any) -> AsyncIterator[tuple[App, Tools]]:
    """A running hub whose tools have no prefix, with these `hub.limits`; whatever it keeps is under `root`."""
    module = sys.modules[__name__]
    tools = module.current = Tools()  # type: ignore[attr-defined]  # what `local:` below finds
    servers = {"local": {"local": f"{__name__}:current.registry"}}
    hub = {"prefix": "never", "max_result_tokens": 0, "limits": limits}
    settings = Settings.model_validate({"servers": servers, "hub": hub})
    async with open_app(Loaded(settings, root / "servers.yaml", frozenset()), {"MCP_HUB_STATE_DIR": str(root)}) as app:
        yield app, tools


def hello(version: str = "2024-11-05") -> dict[str, Any]:
    """The params of `initialize`."""
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
