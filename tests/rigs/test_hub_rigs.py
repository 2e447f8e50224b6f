"""Short cases of rigs that load or kill hubs, whose own commands of `make proof` run them all at length."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from rigs.busy import main, process_tests, run, runs_in
from rigs.chaos.chaos import chaos
from rigs.chaos.hubs import Life
from rigs.chaos.replicas import Plan as ReplicaPlan
from rigs.chaos.replicas import replicas
from rigs.chaos.stepped import stepped
from rigs.events.run import Plan as EventPlan
from rigs.events.run import events
from rigs.fuzz.search import Search, drawn, fault_of, smaller
from rigs.fuzz.target import Target
from rigs.fuzz.workers import TARGETS
from rigs.poison.run import Plan as PoisonPlan
from rigs.poison.run import poisoned
from rigs.report import crashes
from rigs.soak.soak import Plan, soak
from tests.redis_server import NO_SERVER, binary
from tests.unit.sandbox.confined import needs_sandbox

ROOT = Path(__file__).parents[2]
LOST = '{"upstream": "git", "code": "start_crashed", "event": "upstream_state", "level": "warning"}'
FAULT = '{"method": "ping", "event": "request_crashed", "level": "error"}'


@pytest.mark.anyio
@pytest.mark.parametrize(
    "hubs",
    [
        pytest.param(1, id="sqlite"),
        pytest.param(2, id="replicas", marks=pytest.mark.skipif(binary() is None, reason=NO_SERVER)),
    ],
)
async def test_no_event_is_lost_when_hubs_and_servers_are_killed(hubs: int) -> None:
    with anyio.fail_after(600):
        outcome = await events(EventPlan(kills=3, events=80, seed=3, hubs=hubs, pause=0.3))
    assert outcome.faults == [] and outcome.kills >= 3 and sum(outcome.happened.values()) > 40


@pytest.mark.proof
@pytest.mark.anyio
async def test_nothing_acknowledged_is_lost_when_hubs_on_one_store_are_killed() -> None:
    with anyio.fail_after(240):
        outcome = await chaos(kills=3, hubs=2, workers=4, seed=7)
    assert outcome.faults == [] and outcome.kills == 3
    begun = [job for job in outcome.jobs if job.stream]
    assert any(job.is_task for job in begun) and not all(job.is_task for job in begun)


@pytest.mark.proof
@pytest.mark.anyio
@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_nothing_acknowledged_is_lost_when_replicas_and_their_server_are_killed_and_paused() -> None:
    plan = ReplicaPlan(
        kills=2, zombies=1, outages=2, flips=3, cuts=3, steps=2, replicas=2, workers=4, lease=2.0, slack=5.0, talks=0.5
    )
    with anyio.fail_after(600):
        outcome = await replicas(plan)
    assert outcome.faults == [] and list(outcome.done.values()) == [2, 1, 2, 3, 3, 2]
    begun = [job for job in outcome.jobs if job.stream]
    assert any(job.is_task for job in begun) and outcome.cut
    assert any(job.messages for job in outcome.jobs), "calls of sessions"
    assert any(event["type"] == "input-received" for job in begun for event in job.events)


def test_an_ending_comes_from_the_last_loss_of_its_replica_unless_that_was_to_be_taken_over_before() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        first = Life(process)
    first.lose()
    second = first.returned()
    assert first.died is not None and first.loss(first.died_at + 1, 0.9) is first, "nothing happened since"
    second.lose()
    second.died_at = first.died_at + 1.3
    first.back = first.died + 0.4
    assert first.loss(first.died_at + 2.17, 0.9) is second and first.loss(first.died_at + 1, 0.9) is first
    first.back = first.died + 1.1
    assert first.loss(first.died_at + 2.17, 0.9) is first


def test_a_clock_is_wrong_by_what_its_file_says(tmp_path: Path) -> None:
    clock = stepped(lambda: 100.0, tmp_path / "off")
    assert clock() == 100.0
    for seconds in (30.0, -3600.0):
        (tmp_path / "off").write_text(str(seconds))
        until = time.monotonic() + 60
        while clock() == 100.0 + (0 if seconds > 0 else 30):
            assert time.monotonic() < until
        assert clock() == 100.0 + seconds


@pytest.mark.proof
@pytest.mark.anyio
@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_replicas_serve_while_their_store_is_poisoned() -> None:
    with anyio.fail_after(600):
        outcome = await poisoned(PoisonPlan(most=60, restarts=1))
    assert outcome.faults == [] and outcome.restarts == 1
    assert outcome.written.total() >= 40 and outcome.set_aside.total() > 0 and outcome.jobs["spared"] > 0
    assert outcome.past["spared"] > 0


@pytest.mark.proof
def test_nothing_is_lost_and_nothing_is_left_behind() -> None:
    outcome = asyncio.run(soak(Plan(200, "http", rounds=2, workers=16)))
    assert outcome.faults == []
    assert sum(outcome.answered.values()) == 200 and outcome.kills == 2


@pytest.mark.proof
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only process groups are killed")
@pytest.mark.parametrize(
    "options",
    [pytest.param([], id="plain"), pytest.param(["--sandbox", "hosts"], id="sandboxed", marks=needs_sandbox())],
)
def test_nothing_is_left_of_servers_children_and_hubs_that_were_killed(options: list[str]) -> None:
    command = [sys.executable, "-m", "rigs.orphans", "--kills", "3", "--seed", "3", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("3 kills"), done.stdout


def test_nothing_is_found_in_a_second() -> None:
    for target in TARGETS.values():
        search = Search(target, seed=1)
        while search.inputs < 2 and not search.findings:  # a busy machine may do one in this time
            search.run(0.2, first=search.inputs)
        assert [(found.data, found.report) for found in search.findings] == []


def test_a_fault_is_found_and_made_small() -> None:
    def check(data: bytes) -> None:
        if b"ab" in data:
            raise KeyError("ab")

    target = Target("t", lambda rng: bytes(rng.choices(b"abcx", k=rng.randrange(40))), check)
    found = next(found for number in range(1000) if (found := fault_of(target, drawn(target, 1, number))) is not None)
    assert found.place.startswith("KeyError at") and smaller(target, found).data == b"ab"


def test_a_fault_of_the_hub_is_found_and_a_server_that_crashed_is_not_one() -> None:
    assert crashes(f"{LOST}\n{FAULT}\nTraceback (most recent call last):") == [
        FAULT,
        "Traceback (most recent call last):",
    ]


def test_a_run_beside_a_load_names_its_failures_and_a_later_sitting_counts_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tests, output = tmp_path / "test_of_two.py", tmp_path / "busy.log"
    tests.write_text("def test_good():\n    pass\n\ndef test_bad():\n    assert not 1\n")
    output.write_text("run 6: 0 failed, 512 s, head abc1234, load 8.1 up to 9.0\n  run 9: 1 failed, 2 s, head x\n")
    line = ["busy", "--runs=1", "--load=1", "--workers=0", "--write", str(output)]
    monkeypatch.setattr(sys, "argv", [*line, "--minutes=0"])
    assert main() == 0 and runs_in(output) == 6
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [*line, "--", str(tests), *options])
    assert main() == 1 and str(output) in capsys.readouterr().err.splitlines()[0]
    before, failed = [text for text in output.read_text().splitlines() if text.startswith("run ")]
    assert before.startswith("run 6: 0 failed") and failed.startswith("run 7: 1 failed, ") and runs_in(output) == 7
    assert "head " in failed and " up to " in failed and "test_of_two.py" in failed.partition("slowest")[2]
    assert output.read_text().count(">       assert not 1") == 1
    assert {"tests/e2e", "tests/unit/stores/test_killed_hubs.py"} <= set(process_tests())
    assert not any(name.startswith("tests/unit/formats/") for name in process_tests())


def test_a_run_that_takes_too_long_ends(tmp_path: Path) -> None:
    outcome = run([str(tmp_path)], 0, tmp_path / "busy.log", 0.1)
    assert outcome.failed == ["the run: it took more than 0.1 s"]
