"""Tools of a hub under test that go on only when the test says so, by files in their folder."""

import json
from pathlib import Path
from typing import Any

_MODULE = """
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from mcp_hub.errors import RpcError
from mcp_hub.upstreams.functions.registry import Progress, Registry, Result

registry = Registry()
HERE = Path(__file__).parent


async def told(name: str) -> None:
    while not (HERE / name).exists():
        await anyio.sleep(0.01)


@registry.tool(annotations={"readOnlyHint": True}, output_schema=dict[str, int])
async def job(nonce: str) -> AsyncIterator[Progress | str | Result]:
    yield Progress(1, 3, message="begun")
    yield "part one\\n"
    (HERE / f"{nonce}.begun").touch()
    await told(f"{nonce}.more")
    yield Progress(2, 3, message="more")
    yield "part two\\n"
    await told(f"{nonce}.done")
    yield Result({"n": 7}, meta={"its": "own"}, is_error=nonce.startswith("bad"))


@registry.tool
async def fails(nonce: str) -> str:
    await told(f"{nonce}.done")
    raise RpcError("no luck", code=-32050, data={"x": 1})


@registry.tool
async def many(n: int) -> AsyncIterator[Progress | str | Result]:
    for i in range(n):
        yield Progress(i + 1, n, message=f"step {i}")
        yield f"line {i} " + "." * 300 + "\\n"
    yield Result("done")


@registry.tool
async def quick() -> str:
    return "quick"
"""

TEXT = json.dumps({"n": 7}, separators=(",", ":"))
RESULT: dict[str, Any] = {
    "content": [{"type": "text", "text": TEXT}],
    "structuredContent": {"n": 7},
    "isError": False,
    "_meta": {"its": "own"},
}


class Held:
    """The files of the tools that run beside the configuration in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "held_tools.py").write_text(_MODULE)

    def say(self, name: str) -> None:
        (self.root / name).touch()

    def has_begun(self, nonce: str) -> bool:
        return (self.root / f"{nonce}.begun").exists()


def config(**hub: Any) -> str:
    """A `servers.yaml` of these tools, without a prefix."""
    return json.dumps(
        {
            "hub": {"prefix": "never", "max_result_tokens": 0, **hub},
            "servers": {"held": {"local": "held_tools:registry"}},
        }
    )
