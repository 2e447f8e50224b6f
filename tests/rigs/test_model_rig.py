"""The model of replicas that share a store: it holds, and it finds each rule that is broken on purpose."""

import logging
import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from mcp_hub.stores.memory import MemoryStreams
from mcp_hub.stores.recovery.writes import ServerWrites, _Append
from mcp_hub.stores.redis import leases
from rigs.model.replica import Replica
from rigs.model.world import Contradiction, World, walk

_STEPS = 20_000
_WALKS = 40


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_no_reader_is_told_what_is_not_so() -> None:
    walks = [walk(8_000, seed) for seed in range(1, 5)]
    assert all(counts.confirmed and counts.cuts for counts in walks)
    assert any(counts.alone for counts in walks) and any(counts.claims for counts in walks)


def tell_at_once(self: Any, stream: Any, write: Any) -> None:
    write.callback(None)


RULES = {
    "an event leaves when its write has failed": (ServerWrites, "_wait", tell_at_once),
    "a refused return is not looked at again": (ServerWrites.bring_back, "__defaults__", (lambda: None, 1)),
    "a write whose answer was lost is made again": (_Append, "is_in", lambda self, stored, row: False),
    "streams of an earlier lease count as held": (ServerWrites, "is_held", lambda self, stream: self._lease.is_held),
    "a replica is gone after half of a lease": (leases, "_WAIT", 0.5),
}
SOON = {"a refused return is not looked at again": 13, "a replica is gone after half of a lease": 29}
"""The walk that finds it within its first steps; the next ones are for a model that has changed."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_broken_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*RULES[rule])
    with pytest.raises(Contradiction):
        for seed in range(_WALKS):
            walk(_STEPS, SOON.get(rule, 0) + seed)


def claim_anything(self: MemoryStreams, row: Any, lines: Any, change: Any, usual: Any = MemoryStreams.claim) -> Any:
    present = self.row(row.id)
    return usual(self, row if present is None else msgspec.structs.replace(row, updated=present.updated), lines, change)


def passes(world: World, seconds: float, *replicas: Replica) -> None:
    """All that these replicas send is done and answered."""
    for _ in range(round(seconds / 0.05)):
        world.time += 0.05
        for replica in replicas:
            if replica.leases.pause <= 0:
                replica.beats()
            while replica.jobs and replica.hears and replica.is_heard:
                replica.arrives()
                replica.answered()
            replica.tends()


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_claim_that_arrives_late_does_not_take_a_stream_whose_owner_has_come_back(
    is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_whole:
        monkeypatch.setattr(MemoryStreams, "claim", claim_anything)
    world = World(random.Random(1))
    owner, claimer, _ = world.replicas
    passes(world, 5, owner, claimer)
    owner.begins()
    passes(world, 1, owner, claimer)
    [stream] = owner.owned
    owner.is_heard = owner.hears = False
    while not claimer.leases.is_gone(owner.name):
        passes(world, 0.1, claimer)
    claimer.claims()
    claimer.arrives()
    claimer.answered()  # the beat, behind which the claim is sent
    assert claimer.jobs
    owner.is_heard = owner.hears = True
    owner.lose_connection()
    while not owner.writes.is_held(stream):
        passes(world, 0.1, owner)
    with nullcontext() if is_whole else pytest.raises(Contradiction):
        claimer.arrives()
        assert world.counts.claims == 0
