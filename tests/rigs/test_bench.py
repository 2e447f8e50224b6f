"""The benchmark's own arithmetic: exponents of costs, the CPU of several processes, an earlier commit, goals."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import __main__ as program
from bench import curves, earlier, peers
from bench.cases import Result
from bench.curves import Costs, fits, lines, measured
from bench.fit import Points, fit
from bench.goals import goals
from bench.ledger import RelayFailed
from bench.load_sse import Statuses
from bench.measure import OwnProcesses
from bench.relay_picture import DEPTHS, Document, Row, picture
from bench.relays import Setup, Unavailable, peer_command
from rigs.clients.install import NotInstalled

OVER = (1, 10, 100, 1_000, 5_000)


def points(constant: float, factor: float, exponent: float, noise: float = 0.0) -> Points:
    return [(x, (constant + factor * x**exponent) * (1 + noise * (-1) ** n)) for n, x in enumerate(OVER)]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("constant", [0.0, 3.0, 600.0])
def test_the_exponent_is_that_of_the_part_above_the_constant(constant: float, exponent: float) -> None:
    found = fit(points(constant, 2.0, exponent))
    assert found.exponent == pytest.approx(exponent, abs=0.02) and found.error < 0.01
    assert found.constant == pytest.approx(constant, rel=0.02, abs=0.1)
    assert found.is_linear_or_better == (exponent <= 1)
    assert found.verdict == ("linear or better" if exponent <= 1 else "worse than linear")


def test_a_cost_that_hardly_grows_is_constant() -> None:
    for found in (fit(points(100, 0.0, 1.0, noise=0.03)), fit(points(100, 0.001, 1.0))):
        assert (found.exponent, found.verdict) == (0.0, "constant")
        assert found.constant == pytest.approx(100, rel=0.03)


def test_a_bend_that_is_less_than_the_noise_is_linear() -> None:
    found = fit([(1, 600), (10, 601), (100, 606), (1_000, 700)])
    assert found.exponent > 1.1 or found.exponent == pytest.approx(1, abs=0.1)
    assert found.is_linear_or_better
    assert not fit([(1, 600), (10, 601), (100, 606), (1_000, 1_800), (5_000, 31_000)]).is_linear_or_better


@pytest.mark.parametrize("bad", [[(1, 1), (2, 2), (3, 3)], [(1, 1), (2, 2), (3, 3), (4, 0)]])
def test_too_little_to_fit_is_refused(bad: Points) -> None:
    with pytest.raises(ValueError, match="4 points above 0"):
        fit(bad)


def test_cpu_of_a_relay_is_that_of_all_its_processes_without_the_upstreams() -> None:
    below = {1: [2, 3], 2: [4], 3: [5], 5: [6]}
    spent = {1: 1.0, 2: 10.0, 4: 100.0, 3: 1_000.0, 5: 10_000.0, 6: 100_000.0}
    own = OwnProcesses(1, lambda pid: below.get(pid, []), {3}.__contains__, spent.__getitem__)
    assert own.pids() == [1, 2, 4]
    assert own.cpu_seconds() == 111.0
    below[1], spent[1] = [3], 2.0
    assert own.cpu_seconds() == 112.0, "what has ended keeps its CPU"


def test_an_upstream_counts_where_it_is_measured_itself() -> None:
    assert OwnProcesses(3, lambda pid: [], lambda pid: True).pids() == [3]


@pytest.mark.processes
def test_processes_are_found_below_one_that_runs_and_the_upstream_is_not_among_them() -> None:
    start = "import subprocess, sys; print(subprocess.Popen({}).pid, flush=True)"
    upstream, helper = (
        ["sys.executable", "'-c'", "'input()'", "'echo_server.py'"],
        ["sys.executable", "'-c'", "'input()'"],
    )
    script = "\n".join(start.format(f"[{', '.join(argv)}]") for argv in (upstream, helper)) + "\ninput()"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None and process.stdin is not None
        _, other = (int(process.stdout.readline()) for _ in range(2))
        own = OwnProcesses(process.pid)
        assert own.pids() == [process.pid, other]
        assert own.cpu_seconds() > 0 and own.rss_mb() > 1
        process.stdin.write("\n" * 3)


def both(hub: float, before: float, figure: str = "cpu_us", failed: int = 0) -> list[Result]:
    return [
        Result("calls-stdio", "1 in flight", "hub", {figure: hub}),
        Result("calls-stdio", "1 in flight", "before", {figure: before}, failed),
    ]


def test_rows_that_are_worse_by_more_than_a_twentieth_are_marked() -> None:
    for hub, worse in ((1.06, True), (1.04, False), (0.5, False)):
        (row,) = earlier.rows(both(hub, 1.0))
        assert row.is_worse == worse
        said = "\n".join(earlier.lines(both(hub, 1.0)))
        assert ("  worse" in said) == worse and f"{int(worse)} of 1 worse" in said


def test_only_costs_that_both_have_are_compared() -> None:
    assert earlier.rows(both(2.0, 1.0, "rate")) == []
    assert earlier.rows(both(2.0, 1.0, failed=1)) == []
    assert earlier.lines([Result("calls-stdio", "1 in flight", "hub", {"cpu_us": 1.0})]) == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a file in a commit, and a change of it that is in none."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "file").write_text("committed")
    name = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "."), (*name, "commit", "-q", "-m", "one")):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)
    (folder / "file").write_text("changed")
    return folder


@pytest.mark.processes
def test_an_earlier_commit_is_taken_as_it_was_committed(repository: Path, tmp_path: Path) -> None:
    found = earlier.commit("HEAD", repository)
    assert len(found) == 40
    assert earlier.here(repository) == f"{found} with changes" and earlier.here(tmp_path) == ""
    earlier.unpack(found, tmp_path / "source", repository)
    assert (tmp_path / "source" / "file").read_text() == "committed"


@pytest.mark.processes
@pytest.mark.parametrize("revision", ["HEAD~1", "none", "--upload-pack=touch x", ""])
def test_what_names_no_commit_is_said(repository: Path, revision: str) -> None:
    with pytest.raises(earlier.NoSuchCommit):
        earlier.commit(revision, repository)


@pytest.mark.parametrize(
    ("asked", "measured_ones"),
    [
        (["limit", "hub", "sdk"], ["limit", "hub", "before", "sdk"]),
        (["before", "hub"], ["hub", "before"]),
        (["limit"], ["limit", "before"]),
    ],
)
def test_against_adds_the_relay_beside_the_hub(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], measured_ones: list[str]
) -> None:
    monkeypatch.setenv("BENCH_BEFORE", "")
    monkeypatch.setattr(earlier, "installed", lambda revision: Path(f"/of/{revision}"))
    monkeypatch.setattr(sys, "argv", ["bench", "--against", "v1", "--relays", ",".join(asked)])
    given = program.arguments()
    assert program.add_earlier(given.against, given.relays) == measured_ones
    assert os.environ["BENCH_BEFORE"] == "/of/v1"


def test_a_commit_that_cannot_be_had_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "prepare", lambda: None)
    monkeypatch.setattr(sys, "argv", ["bench", "--against", "no such commit"])
    assert program.main() == 2
    assert "--against: no such commit" in capsys.readouterr().err


def test_a_peer_says_why_it_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "SIDE", tmp_path)
    with pytest.raises(Unavailable, match="HTTP only"):
        peer_command("mcp-proxy", Setup("stdio"), tmp_path, 0)
    with pytest.raises(Unavailable, match="one upstream"):
        peer_command("mcp-proxy", Setup("http", 2), tmp_path, 1)
    for name in peers.PEERS:
        with pytest.raises(Unavailable, match="not installed"):
            peer_command(name, Setup("http"), tmp_path, 1)
        assert peers.versions([name]) == ""


def test_a_peer_of_another_version_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "SIDE", tmp_path)
    mark = peers.PEERS["mcp-proxy"].folder / ".installed"
    mark.parent.mkdir(parents=True)
    mark.write_text("mcp-proxy==0.1")
    assert peers.versions(["mcp-proxy"]) == ""
    with pytest.raises(NotInstalled):
        peers.command("mcp-proxy", ["server", "an option"], 80, tmp_path)
    mark.write_text(peers.PEERS["mcp-proxy"].requirement)
    assert peers.versions(["mcp-proxy", "supergateway"]) == peers.PEERS["mcp-proxy"].requirement
    line = peers.command("mcp-proxy", ["server", "an option"], 80, tmp_path)
    assert line[0].startswith(str(tmp_path)) and line[-2:] == ["server", "an option"] and "80" in line


def test_a_request_that_is_not_accepted_is_found_wherever_its_status_is_cut() -> None:
    good, bad = b"HTTP/1.1 202 Accepted\r\n\r\nAccepted", b"HTTP/1.1 500 Oops\r\n\r\n"
    for cut in range(len(good + bad)):
        statuses = Statuses()
        with pytest.raises(RelayFailed, match="500 Oops|500"):
            for part in ((good + bad)[:cut], (good + bad)[cut:]):
                statuses.feed(part)
    for cut in range(len(good + good)):
        statuses = Statuses()
        statuses.feed((good + good)[:cut])
        statuses.feed((good + good)[cut:])


def test_goals_of_a_call_are_about_the_hub_without_its_history() -> None:
    results = [
        Result("calls-stdio", "1 in flight", side, {"cpu_us": cpu})
        for side, cpu in (("limit", 10.0), ("hub", 30.0), ("history off", 17.0))
    ]
    with_history = [result for result in results if result.side != "history off"]
    for found, reached, verdicts in ((results, 1.7, ["met", "missed"]), (with_history, 3.0, ["missed", "missed"])):
        near = [goal for goal in goals(found) if goal.stage in ("next", "aim")]
        assert [goal.verdict for goal in near] == verdicts
        assert all(goal.reached == reached for goal in near)


def test_the_picture_has_a_bar_for_each_depth_of_each_relay() -> None:
    rows = [
        Row("calls-http", depth, side, {"cpu_us": cpu})
        for side, cpu in (("limit", 20.0), ("hub", 200.0), ("direct", 1.0))
        for depth in DEPTHS
    ]
    failed = Row("calls-http", DEPTHS[0], "mcp-proxy", {"cpu_us": 9.0}, failed=1)
    drawn = picture(Document({"cpu": "a <b>", "cores": "2", "python": "3"}, [*rows, failed]))
    found = ElementTree.fromstring(drawn)
    bars = [float(bar.attrib["width"]) for bar in found.findall("{*}rect") if bar.attrib.get("x") == "190"][1:]
    assert len(bars) == 4 and bars[2] > 2 * bars[0]
    assert "mcp-proxy" not in drawn and "a &lt;b&gt;" in drawn
    with pytest.raises(ValueError, match="no calls"):
        picture(Document({}, [failed]))


def test_a_curve_takes_as_long_as_it_may_and_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def way(relay: str, over: tuple[int, ...]) -> Iterator[tuple[int, Costs]]:
        try:
            for x in over:
                yield x, {"cost": 2.0 * x}
        finally:
            closed.append(relay)

    monkeypatch.setitem(curves.CURVES, "servers", (way, (1, 2, 3, 4), (1, 2)))
    every = measured("servers", "hub", False, lambda line: None)
    assert [x for x, _ in every] == [1, 2, 3, 4] and closed == ["hub"]
    assert fits(every)["cost"].exponent == pytest.approx(1, abs=0.02)
    monkeypatch.setattr(curves, "SECONDS", -1.0)
    first = measured("servers", "hub", False, lambda line: None)
    assert [x for x, _ in first] == [1] and len(closed) == 2
    assert "too few points" in "\n".join(lines("servers", first, fits(first)))
