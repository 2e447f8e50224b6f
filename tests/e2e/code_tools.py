"""Functions for tests of scripts; a made `run_code` until a hub has its own."""

from collections.abc import AsyncIterator

from mcp_hub import Progress, Result, tool


@tool
async def run_code(code: str, again: bool = False) -> AsyncIterator[Progress | str | Result]:
    yield Progress(1, 1, "calls: 1")
    yield f"printed {len(code)}\n"
    yield Result(f"printed {len(code)}\n{code}{again}")


@tool
def lookup() -> str:
    return "found"


@tool
def store(text: str) -> str:
    return f"stored {text}"
