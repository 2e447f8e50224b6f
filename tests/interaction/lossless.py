"""What crosses the hub and how it arrives, for each era of client and server: measured, as tables.

`python -m tests.interaction.lossless` writes `docs/lossless.md`; a test holds the file equal to what happens.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import anyio

from tests.interaction.fronts import ERAS
from tests.interaction.lossless_places import Place, places
from tests.interaction.lossless_rows import DEFINITIONS, SECTIONS

__all__ = ["DOCUMENT", "Found", "measure", "render"]

DOCUMENT = Path(__file__).parents[2] / "docs" / "lossless.md"

Found = dict[tuple[str, str], dict[Place, list[str] | None]]
"""What changed, by section and row and place."""


async def measure() -> Found:
    found: Found = {(section, name): {} for section, rows in SECTIONS.items() for name in rows}

    async def one(group: list[Place]) -> None:
        for place in group:
            for section, rows in SECTIONS.items():
                for name, row in rows.items():
                    try:
                        found[section, name][place] = await row(place)
                    except Exception as failed:
                        found[section, name][place] = [f"FAILED {failed!r}"[:300]]

    with tempfile.TemporaryDirectory() as root:
        async with places(Path(root), DEFINITIONS) as groups, anyio.create_task_group() as tasks:
            for group in groups:
                tasks.start_soon(one, group)
    return found
