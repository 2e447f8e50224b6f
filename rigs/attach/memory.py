"""What attached clients cost: memory as the kernel shares it out (PSS), and that of one shim."""

import os
from contextlib import AsyncExitStack
from pathlib import Path

from rigs.attach.place import Place, echoed, expect
from rigs.attach.trial import Trial

MOST_TO_ONE = 1.3
"""Memory of five attached clients, their hub and its servers, to that of one."""
MOST_OF_SHIM = 20.0
"""MB (10⁶ bytes) resident."""


async def five_clients(trial: Trial) -> None:
    """Five attached clients take at most 1.3 × the memory of one."""
    async with trial.place(servers=("a", "b", "c")) as place, AsyncExitStack() as stack:
        totals = []
        for number in range(5):
            client = await stack.enter_async_context(place.joined())
            for server in ("b", "c"):
                await echoed(client, f"{number}", server)
            totals.append(pss(place))
        shims = [resident(pid) for pid in place.clients]
        ratio = totals[-1] / totals[0]
        trial.figures.append(f"1 client {totals[0]:.0f} MB, 5 clients {totals[-1]:.0f} MB (PSS): {ratio:.2f} ×")
        trial.figures.append(f"a shim {max(shims):.1f} MB resident")
        expect(ratio <= MOST_TO_ONE, f"five clients take more than {MOST_TO_ONE} × the memory of one", totals)
        expect(max(shims) <= MOST_OF_SHIM, f"a shim takes more than {MOST_OF_SHIM} MB", shims)


def pss(place: Place) -> float:
    """MB of all processes of a place; memory that several share counts once."""
    total = 0
    for pid in place.processes():
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6


def resident(pid: int) -> float:
    """MB that a process has in memory, shared pages included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
