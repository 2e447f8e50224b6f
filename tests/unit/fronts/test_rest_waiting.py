"""Calls over REST that wait for their turn."""

from pathlib import Path

import anyio.lowlevel
import pytest

from mcp_hub.calls.rules import TimeLimits
from tests.unit.fronts.rest_peer import problem, rest_hub

pytestmark = pytest.mark.anyio


async def test_call_whose_turn_never_came_leaves_its_key_free(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"running_calls": 1}) as peer:
        key = {"idempotency-key": "k"}
        first = await peer.detached("hold", {"nonce": "a"})
        await peer.tools.has_come("a")
        id_ = await peer.detached("echo", {"text": "x"}, **key)
        (waiting,) = (record for record in peer.app.registry.under_way if record.call.id == id_)
        waiting.times.limits = TimeLimits(0.01, 0.01)
        peer.app.registry.reschedule(waiting.due)
        known = await peer.until(id_, "failed")
        assert known["error"]["code"] == "busy" and known["error"]["retryable"] is True
        await peer.ask("DELETE", f"/v1/streams/{first}")
        await peer.until(first, "cancelled")
        made = await peer.call("echo", {"text": "x"}, headers=key).ended()
        assert made.status == 200 and made.json["stream"] != id_


async def test_hub_that_stops_says_of_a_waiting_call_that_nothing_was_done(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"running_calls": 1}) as peer:
        await peer.detached("hold", {"nonce": "a"})
        await peer.tools.has_come("a")
        waiting = peer.call("echo", {"text": "x"})
        while len(peer.app.registry) < 2:
            await anyio.lowlevel.checkpoint()
        peer.rest.close()
        await peer.app.stop()
        stopped = await waiting.ended()
        said = problem(stopped, 503, "hub_stopped")
        assert said["retryable"] is True and "outcome" not in said and "retry-after" in stopped.headers
