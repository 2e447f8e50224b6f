"""Runs one driver: a client on a front, with a server of one era behind it."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from rigs.clients.clients import HANDSHAKE_VERSION, Client
from rigs.clients.install import ROOT
from rigs.clients.rig import Rig, arranged, left_running, stop_attached
from tests.upstreams.child import PeerClosed
from tests.upstreams.stdio_client import StdioClient

SECONDS = 120.0
"""For all steps of a driver together; each has its own limit besides."""
ENDS = "ends"
"""The step that no driver takes: nothing that it started runs on after it."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    client: Client
    front: str
    era: str

    @property
    def version(self) -> str:
        """The revision that the two should agree on: nobody is newer than the server itself."""
        is_old = self.front == "direct" and self.era == "handshake"
        return HANDSHAKE_VERSION if is_old else self.client.version

    def __str__(self) -> str:
        return f"{self.client.name}, {self.front}, {self.era}"


@dataclass(frozen=True)
class Outcome:
    """How a step went; `ms` of 0 for one that was not come to."""

    step: str
    ok: bool
    detail: str = ""
    ms: int = 0


Results = Mapping[Row, Sequence[Outcome]]


async def run(row: Row, steps: Sequence[str], logs: Path | None = None) -> list[Outcome]:
    """The outcomes of these steps, and that of `ENDS`; stderr goes to a file in `logs`. Raises: `NotInstalled`."""
    wrong: list[str] = []
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        try:
            outcomes = await driven(row, steps, root, logs)
            if row.front == "attached":
                await stop_attached(root)
        except* (AssertionError, PeerClosed, TimeoutError) as broken:  # a hub that does not start, or not stop in time
            wrong += [str(error) for error in broken.exceptions]
        wrong += [f"left running: {line}" for line in await left_running(root)]
    lost = [] if outcomes else [Outcome(step, False, "the hub did not start, or not stop in time") for step in steps]
    return [*outcomes, *lost, Outcome(ENDS, not wrong, "; ".join(wrong))]


async def driven(
    row: Row, steps: Sequence[str], root: Path, logs: Path | None = None, *, shares: bool = False
) -> list[Outcome]:
    """The outcomes of these steps by a client that has its files in `root`; with `shares` others use its hub, too.

    Raises: `NotInstalled`, and groups of `AssertionError`, `PeerClosed` and `TimeoutError`.
    """
    # no proxy, and no files of the user's: neither is the client's
    env = {"HOME": str(root), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    driver = StdioClient(row.client.library.argv(), env, cwd=ROOT)
    async with arranged(row.client, row.front, row.era, root) as rig, driver:
        with suppress(PeerClosed, TimeoutError):
            await _attend(driver, rig, {**_task(row, rig, steps), "shares": shares})
        is_uncut = rig.cutter is not None and not rig.cutter.has_cut
    if logs is not None:
        (logs / f"{row}.log".replace(", ", "-")).write_text(driver.stderr)
    return [_uncut(outcome) if is_uncut else outcome for outcome in _outcomes(driver, steps)]


def _uncut(outcome: Outcome) -> Outcome:
    """`resume` says nothing if the connection never broke."""
    return outcome if outcome.step != "resume" else Outcome("resume", False, f"nothing was cut; {outcome.detail}")


def _task(row: Row, rig: Rig, steps: Sequence[str]) -> dict[str, object]:
    expect = {"server": rig.task["name"] if row.front.startswith("direct") else "mcp-hub", "version": row.version}
    client = {"mode": row.client.mode, "large_integers": row.client.has_large_integers, **row.client.extras()}
    return {**rig.task, **client, "steps": list(steps), "expect": expect}


async def _attend(driver: StdioClient, rig: Rig, task: dict[str, object]) -> None:
    """Give it the task, and do what it wants until it is through. Raises: `PeerClosed`, `TimeoutError`."""
    await driver.send(task)
    heard = 0
    with anyio.fail_after(SECONDS):
        while True:
            message = await driver.wait_for(lambda m: "want" in m or "end" in m, after=heard, seconds=SECONDS)
            if "end" in message:
                return
            heard = driver.transcript.index(message) + 1
            assert rig.hub is not None
            await rig.hub.stop()
            await rig.hub.start()
            await driver.send({"done": message["want"]})


def _outcomes(driver: StdioClient, steps: Sequence[str]) -> list[Outcome]:
    told = {m["step"]: Outcome(m["step"], m["ok"], m["detail"], m["ms"]) for m in driver.transcript if "step" in m}
    ended = f"the driver ended or was stopped before it: {json.dumps(driver.stderr[-300:])}"
    return [told.get(step, Outcome(step, False, ended)) for step in steps]
