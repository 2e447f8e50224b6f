"""Which rows are run, and which of them behind one hub."""

import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rigs.hostile.cases import CASES
from rigs.hostile.run import Outcome, Row, run_together

TOGETHER = 4
"""Bad servers behind one hub in `make test`."""
_IN_A_ROW = 6


def usual_rows() -> list[Row]:
    """Every case once: over stdio, those that only HTTP has over that."""
    return [Row(case, case.transports[0]) for case in CASES if not case.only_all]


def every_row() -> list[Row]:
    """Every case in each era over each transport that it has."""
    return [Row(case, transport, era) for case in CASES for transport in case.transports for era in case.eras]


def groups(rows: Sequence[Row], together: int) -> list[list[Row]]:
    """Rows that share a hub: `together` servers each, at most one of them heavy; a server's rows go one by one."""
    by_server: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        alone = row.case.name if row.case.child_dies or together == 1 else ""
        by_server.setdefault((*row.server, alone), []).append(row)
    # a server that is met by many calls is cut in pieces, which go on side by side
    servers = [found[at : at + _IN_A_ROW] for found in by_server.values() for at in range(0, len(found), _IN_A_ROW)]
    heavy = [found for found in servers if any(row.case.is_heavy for row in found)]
    light = [found for found in servers if found not in heavy]
    shared = []
    while heavy or light:
        group = [heavy.pop(0)] if heavy else []
        while light and len(group) < together:
            group.append(light.pop(0))
        shared.append(sum(group, []))
    return shared


async def run_groups(rows: Sequence[Row], together: int) -> AsyncIterator[list[Outcome]]:
    """The outcomes, hub by hub."""
    for group in groups(rows, together):
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            yield await run_together(group, Path(folder))
