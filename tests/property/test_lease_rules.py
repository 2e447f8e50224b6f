"""Each rule of a lease, kept and broken on purpose: then two replicas hold one stream, or a living one loses it."""

from typing import Any

import pytest

from mcp_hub.stores.redis import leases
from mcp_hub.stores.redis.leases import Leases
from tests.property.lease_world import FAST, Replica, World


def pair(holder: float = 1.0, claimer: float = 1.0, broken: str = "") -> tuple[World, Replica, Replica]:
    """A holder of stream 0 and another replica; the rates of their clocks."""
    world = World()
    world.broken = broken
    one, two = world.join(holder), world.join(claimer)
    world.pass_by(2.5)
    one.create(0)
    world.pass_by(0.1)
    assert world.holders(0) == [one.name]
    return world, one, two


def most_holders(world: World, seconds: float = 8) -> int:
    """Of stream 0 at one time, during these seconds."""
    most = 0
    for _ in range(round(seconds / 0.002)):
        world.pass_by(0.002)
        most = max(most, len(world.holders(0)))
    return most


BREACH = pytest.mark.parametrize(("is_broken", "holders"), [(False, 1), (True, 2)])


@BREACH
def test_claimer_waits_longer_than_the_slowest_clock(
    monkeypatch: pytest.MonkeyPatch, *, is_broken: bool, holders: int
) -> None:
    if is_broken:
        monkeypatch.setattr(leases, "_WAIT", 1.0)
    world, holder, other = pair(0.9, 1.1)
    holder.is_cut = True
    assert most_holders(world) == holders and world.owners[0][0] == other.name


@BREACH
def test_lease_counts_from_the_sending_of_a_beat(
    monkeypatch: pytest.MonkeyPatch, *, is_broken: bool, holders: int
) -> None:
    world, holder, other = pair()
    if is_broken:
        take = Leases.answered
        monkeypatch.setattr(Leases, "answered", lambda self, sent, reply: take(self, self._boottime(), reply))
    holder.delays = lambda: (FAST, 1.1)
    world.pass_by(3)
    holder.create(1)
    world.pass_by(holder.leases._begun + 1.15 - world.time)  # the last beat was answered just now
    holder.acquired[0] = holder.clock()
    holder.is_cut = True
    assert most_holders(world) == holders and world.owners[0][0] == other.name


@BREACH
def test_beat_after_a_gap_gives_no_stream_back(*, is_broken: bool, holders: int) -> None:
    """The claim was sent before the holder was back, and comes behind its beats."""
    world, holder, other = pair(broken="gap" if is_broken else "")
    other.claims = 1.0
    holder.suspend(2.2)
    assert most_holders(world) == holders and world.owners[0][0] == other.name


@BREACH
def test_suspension_counts(*, is_broken: bool, holders: int) -> None:
    world, holder, other = pair(broken="suspension" if is_broken else "")
    holder.suspend(4)
    assert most_holders(world) == holders and world.owners[0][0] == other.name


@BREACH
def test_claimer_looks_once_more_at_the_owner_of_a_row(*, is_broken: bool, holders: int) -> None:
    """It took the replica to be gone, which has come back since and begun a stream."""
    world, holder, other = pair(broken="look" if is_broken else "")
    holder.suspend(2)
    world.pass_by(2.5)
    other.pauses = lambda: 1.0
    world.pass_by(0.4)
    for later in (0, 1, 2):  # so that it takes it to be gone
        other.leases.peers.read(other.clock() + later, other.clock() + later, {holder.name: 1}, ())
    holder.create(1)
    world.pass_by(0.01)
    assert world.holders(1) == [holder.name]
    other._look(1)
    world.pass_by(0.1)
    assert len({*world.holders(1), *(replica.name for replica in world.replicas if 1 in replica.acquired)}) == holders


@BREACH
def test_after_a_failure_of_the_server_everybody_is_observed_anew(
    monkeypatch: pytest.MonkeyPatch, *, is_broken: bool, holders: int
) -> None:
    """The other one comes back to it first."""
    world, holder, other = pair()
    if is_broken:
        read = leases._Peers.read
        monkeypatch.setattr(Leases, "server_failed", lambda self: None)

        def believing(peers: leases._Peers, sent: float, answered: float, *rest: Any) -> list[str]:
            peers.sent = answered
            return read(peers, sent, answered, *rest)

        monkeypatch.setattr(leases._Peers, "read", believing)
    holder.pauses = lambda: 0.5
    world.is_down = True
    world.pass_by(4)
    world.is_down = False
    world.pass_by(2)
    assert len(world.takeovers) == holders - 1
