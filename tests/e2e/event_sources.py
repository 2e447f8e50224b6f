"""Event functions for a hub of tests: one that reports the lines of a file, one with hostile texts."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from mcp_hub import Event, Registry
from tests.e2e.hostile_texts import EVERYWHERE, EVIL

registry = Registry()


def lines() -> list[str]:
    file = Path(os.environ["TEST_EVENTS"])
    return file.read_text().splitlines() if file.exists() else []


@registry.event
async def builds(branch: str = "main", cursor: str | None = None) -> AsyncIterator[Event]:
    """A build of a branch has ended."""
    seen = len(lines()) if cursor is None else int(cursor)
    while True:
        for number, line in enumerate(lines()[seen:], seen + 1):
            yield Event({"branch": branch, **json.loads(line)}, f"build-{number}", cursor=str(number))
        seen = len(lines())
        await anyio.sleep(0.02)


@registry.event(name="evil", description=EVIL + " a\u202eb\x1b[2Jc " + "long " * 3000)
async def evil() -> AsyncIterator[Event]:
    while not lines():  # noqa: ASYNC110 - a file of the test
        await anyio.sleep(0.02)
    for number in range(3):
        yield Event({EVIL: EVIL, "text": "a\u202eb\x1b[2Jc", **dict.fromkeys(EVERYWHERE, number)}, f"{number}{EVIL}")
    yield Event({"text": "x" * 200_000}, "long")
    await anyio.sleep_forever()
