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
from tests.upstreams.child import WAIT
from tests.upstreams.messages import CLIENT

TOOLS = ["echo", "steps", "hold", "hurry", "fail", "refuse", "flood", "wait", "big"]


class Tools:
    """The tools of one hub. `hold` and `steps` wait for `go`; `held` has the nonces of those that came so far.

    `steps` and `refuse` raise each of `refusals` once.
    """

    def __init__(self) -> None:
        self.registry = Registry()
        self.held: list[str] = []
        self.cancelled: list[str] = []
        self.refusals: list[Exception] = []
        self.go = anyio.Event()
        self.came = anyio.Event()
        for name in TOOLS:
            self.registry.tool(getattr(self, name))

    async def echo(self, text: str) -> str:
        return text

    async def fail(self, text: str) -> str:
        raise ValueError(text)

    async def refuse(self, text: str) -> str:
        if self.refusals:
            raise self.refusals.pop()
        return text

    async def steps(self, n: int) -> AsyncIterator[Progress | str | Result]:
        for i in range(1, n + 1):
            yield Progress(i, n, f"step {i}")
            yield f"part {i}\n"
            if i == 1:
                await self.go.wait()
                if self.refusals:
                    raise self.refusals.pop()
        yield Result(f"{n} steps")

    async def flood(self, n: int) -> AsyncIterator[str | Result]:
        for i in range(n):
            yield "x" * 5000 + str(i)
        yield Result("flooded")

    async def hurry(self, n: int) -> AsyncIterator[Progress | Result]:
        for i in range(1, n + 1):
            yield Progress(i, n)
        yield Result("hurried")

    async def hold(self, nonce: str) -> str:
        self.held.append(nonce)
        self.came.set()
        try:
            await self.go.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.append(nonce)
            raise
        return nonce

    async def big(self, size: int) -> str:
        return "x" * size

    async def wait(self, nonce: str, more: float = 0) -> str:
        await self.go.wait()
        return f"{nonce} {more}"

    async def has_come(self, nonce: str) -> None:
        """Returns once a call to `hold` with it runs."""
        with anyio.fail_after(WAIT):
            while nonce not in self.held:
                self.came = anyio.Event()
                await self.came.wait()


@asynccontextmanager
async def local_hub(root: Path, **hub: Any) -> AsyncIterator[tuple[App, Tools]]:
    """A running hub whose local tools have no prefix; `hub` are its settings, `per_tool` and `profiles`.

    Streams are in memory.
    """
    module = sys.modules[__name__]
    tools = module.current = Tools()  # type: ignore[attr-defined]  # what `local:` below finds
    per_tool = hub.pop("per_tool", {})
    profiles = hub.pop("profiles", {"narrow": {"tools": {"allow": ["echo"]}}, "elsewhere": {"servers": []}})
    settings = Settings.model_validate(
        {
            "servers": {"local": {"local": f"{__name__}:current.registry", "per_tool": per_tool}},
            "profiles": profiles,
            "hub": {"prefix": "never", "store": {"type": "memory"}, **hub},
        }
    )
    loaded = Loaded(settings, root / "servers.yaml", frozenset())
    async with open_app(loaded, {"MCP_HUB_STATE_DIR": str(root)}, has_executors=True) as app:
        yield app, tools


def hello(version: str = "2024-11-05") -> dict[str, Any]:
    """The params of `initialize`."""
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
