"""`python -m bench.takeover`: what replicas cost that do nothing, and how soon calls end after their replica.

`--quick`: fewer of each. A call is followed at another replica; a replica is killed, or told to stop, at any moment
between two of its beats.
"""

import random
import signal
import sys
import time
from collections.abc import Iterator
from statistics import median

from bench.follow import ENDINGS, Follower, Requests, follow_request
from bench.ledger import RelayFailed
from bench.relays import Side
from bench.replica_site import Site, site
from mcp_hub.config.schema.hub import StoreSettings

_IDLE = 20.0
"""Seconds for which replicas do nothing."""
_LEASES = (StoreSettings().lease, 0.5)
_SETTLE = 5.0
"""Seconds after which replicas have begun."""


def measured(hub: dict[str, object], quick: bool) -> Iterator[str]:
    """Raises `NotInstalled`, `RelayFailed`."""
    for lease in _LEASES:
        with site(3 if quick else 7, hub, lease=lease) as running:
            time.sleep(_SETTLE)
            yield f"lease {lease:g} s: {idle(running, _IDLE / 4 if quick else _IDLE)}"
            half = len(running.sides) // 2 + 1
            for by, sides in ((signal.SIGKILL, running.sides[1:half]), (signal.SIGTERM, running.sides[half:])):
                yield f"  {by.name:10}{line_of(ends(running, by, sides))}"


def line_of(seconds: list[float]) -> str:
    return (
        f"median {median(seconds):.2f} s, longest {max(seconds):.2f} s to the ending elsewhere ({len(seconds)} times)"
    )


def idle(running: Site, seconds: float) -> str:
    """Commands for each replica and second, by a look at all that the server is sent."""
    sent, before, begun = 0, running.totals(), time.monotonic()
    with running.server.client as client, client.monitor() as monitor:
        while (elapsed := time.monotonic() - begun) < seconds:
            sent += monitor.next_command()["client_type"] != "lua"
    spent, each = running.totals().since(before), len(running.sides) * elapsed
    every = spent.commands.total() / each
    return (
        f"{sent / each:.2f} commands sent by an idle replica each second, {every:.1f} with those inside scripts; "
        f"{spent.server / elapsed * 1e3:.1f} ms CPU of the server each second for {len(running.sides)}"
    )


def ends(running: Site, by: signal.Signals, sides: list[Side]) -> list[float]:
    """Seconds from the signal to the ending of a call of each of these replicas, as the first one sees it."""
    taken = []
    for side in sides:
        with Requests(side.port) as begins:
            stream = begins.begin(side.tool("slow"), b'{"ms":60000}')
            follower = Follower(running.sides[0].port, follow_request(stream))
            follower.read_stream()
            time.sleep(2 + random.random())
            begun = time.monotonic()
            side.process.send_signal(by)
            follower.read_all()
        endings = [event for event in follower.events() if event.line.type in ENDINGS]
        if not endings:
            raise RelayFailed("a call of a replica that is gone has no ending")
        taken.append(endings[0].at - begun)
    return taken


if __name__ == "__main__":
    for line in measured({}, "--quick" in sys.argv):
        print(line, flush=True)
