"""A short `make chaos`: three hubs on one store, nine kills."""

import pytest

from tests.chaos.chaos import chaos

pytestmark = pytest.mark.anyio


async def test_nothing_acknowledged_is_lost_when_hubs_on_one_store_are_killed() -> None:
    outcome = await chaos(kills=9, hubs=3, workers=6, seed=7)
    assert outcome.faults == []
    assert outcome.kills == 9
    begun = [job for job in outcome.jobs if job.stream]
    assert any(job.is_task for job in begun) and not all(job.is_task for job in begun)
    assert any(job.events[-1]["type"] == "error" for job in begun), "some calls were killed with their hub"
