"""A process that writes streams until it is killed, and says on stdout what has been confirmed: `id last status`.

Arguments: the state directory; the most bytes that a file may have, or 0.
"""

import random
import resource
import sys
from functools import partial
from pathlib import Path

import anyio

from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, EventStore
from mcp_hub.types import CallId, Status
from tests.unit.stores.event_stores import events, new_failsafe, new_row

STREAMS = 8


ENDED: tuple[Status, ...] = ("completed", "failed", "cancelled")


class Writer:
    """Streams one after the other, each a few chunks long; every fourth never ends."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    def begin(self) -> None:
        count = random.randint(0, 3)
        row = new_row(self._store, ttl=1e9, last=count)
        told = partial(self._confirmed, row.id, count, "working", random.randint(1, 20))
        self._store.log.create(row, events(1, count), told)

    def _confirmed(self, id_: CallId, last: int, status: Status, left: int, error: StoreError | None) -> None:
        assert error is None, error
        sys.stdout.write(f"{id_} {last} {status} {self._store.log.is_durable}\n")
        if status != "working":
            self.begin()
        elif left == 0 and random.random() < 0.25:
            self.begin()
        else:
            count = random.choice([0, 1, 1, 5, 100])
            status = "working" if left else random.choice(ENDED)
            told = partial(self._confirmed, id_, last + count, status, max(left - 1, 0))
            change = Change(200.0, status=status)
            self._store.log.append(id_, 1, events(last + 1, count, random.choice([0, 300])), change, told)


async def main(folder: Path) -> None:
    store = new_failsafe(folder)
    await store.open()
    sys.stdout.write(f"{store.log.instance}\n")
    for _ in range(STREAMS):
        Writer(store).begin()
    while True:
        await anyio.sleep(0.01)
        sys.stdout.flush()


if __name__ == "__main__":
    if most := int(sys.argv[2]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    anyio.run(main, Path(sys.argv[1]))
