"""The logs of servers: bounded, masked, private, in order, and read once across rotation and several hubs."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from mcp_hub import logs, masking
from mcp_hub.stores.server_logs import (
    GENERATIONS,
    LARGEST,
    MOST,
    ServerLogReader,
    ServerLogWriter,
    append,
    generations,
    log_file,
    log_folder,
)

SECRET = "s3cret-canary-value"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return log_folder(tmp_path, "/home/ann/servers.yaml")


@contextmanager
def writing(folder: Path) -> Iterator[ServerLogWriter]:
    """Logs of servers; all of it is written at the end of the block."""
    made = ServerLogWriter(folder, lambda: 1_700_000_000.0)
    with made.recording():
        yield made


def texts(folder: Path, server: str | None = None) -> list[str | None]:
    return [record.stderr for record in ServerLogReader(folder, server).fresh()]


def line(number: int, size: int = 0) -> bytes:
    about = {"time": f"2026-01-01T00:00:00.{number:09d}Z", "server": "git", "hub": 1, "stderr": str(number)}
    return json.dumps(about | {"data": {"pad": "x" * size}}).encode() + b"\n"


def test_lines_are_kept_in_order_masked_and_for_nobody_else(folder: Path) -> None:
    masking.learn([SECRET])
    with writing(folder) as made:
        made.output("git", [b"first", b"", b"token " + SECRET.encode(), b"\xff\x1b[31m"])
        made.output("a/b\n", [b"other"])
    assert texts(folder, "git") == ["first", "token ***", "�\x1b[31m"]
    assert ServerLogReader(folder).servers() == ["a/b\n", "git"]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.parent.rglob("*")}
    assert modes == {0o600, 0o700}
    assert all(SECRET.encode() not in path.read_bytes() for path in folder.glob("*"))


def test_a_full_queue_drops_the_oldest_lines_and_counts_them(folder: Path) -> None:
    with writing(folder) as made:
        made.output("git", [b"%d " % number + b"x" * 1000 for number in range(1000)])
    first, *rest = ServerLogReader(folder).fresh()
    assert first.event == "lines_dropped" and first.data == {"count": 1000 - len(rest)}
    assert 200 < len(rest) < 256
    assert [str(own.stderr).split()[0] for own in rest] == [str(1000 - len(rest) + place) for place in range(len(rest))]


def test_a_server_has_five_files_of_one_mebibyte_at_most(folder: Path) -> None:
    path = log_file(folder, "git")
    for number in range(80):
        append(path, line(number, 100_000))
    assert sum(file.exists() for file in generations(path)) == GENERATIONS == len(list(folder.iterdir()))
    assert all(LARGEST - 101_000 < file.stat().st_size <= LARGEST for file in generations(path)[:-1])
    kept = texts(folder)
    assert kept == [str(number) for number in range(80 - len(kept), 80)] and len(kept) > 40


def test_the_log_written_longest_ago_makes_room_for_another_server(tmp_path: Path) -> None:
    others = log_folder(tmp_path, "/other.yaml")
    others.mkdir(parents=True)
    for number in range(MOST):
        log_file(others, str(number)).touch()
        os.utime(log_file(others, str(number)), (number + 1, number + 1))
    log_file(others, "0").with_suffix(".jsonl.1").touch()
    append(log_file(log_folder(tmp_path, "/new.yaml"), "git"), line(0))
    assert len(list(tmp_path.glob("logs/*/*.jsonl*"))) == MOST
    assert not log_file(others, "0").exists() and log_file(others, "1").exists()


@pytest.mark.parametrize("every", [1, 7, 25])
def test_a_reader_gets_each_record_once_across_rotation(folder: Path, every: int) -> None:
    path, reader = log_file(folder, "git"), ServerLogReader(folder, "git")
    seen: list[str | None] = []
    for number in range(50):
        append(path, line(number, 150_000))
        if number % every == 0:
            seen += [record.stderr for record in reader.fresh()]
    seen += [record.stderr for record in reader.fresh()]
    assert seen == [str(number) for number in range(50)]


def test_a_line_that_is_half_written_is_read_when_it_is_whole(folder: Path) -> None:
    path, reader, whole = log_file(folder, "git"), ServerLogReader(folder), line(1)
    append(path, line(0) + whole[:20])
    assert [record.stderr for record in reader.fresh()] == ["0"]
    append(path, whole[20:])
    assert [record.stderr for record in reader.fresh()] == ["1"] and reader.fresh() == []


def test_what_is_not_a_record_is_skipped(folder: Path) -> None:
    append(log_file(folder, "git"), line(0) + b"{half\n\xff\n[]\n" + line(1))
    assert texts(folder) == ["0", "1"]


def test_several_hubs_of_one_configuration_write_whole_lines(folder: Path) -> None:
    with writing(folder) as one, writing(folder) as other:
        for number in range(50):
            one.output("git", [b"one %d" % number])
            other.output("git", [b"other %d" % number])
    found = texts(folder)
    for name in ("one", "other"):
        assert [text for text in found if str(text).startswith(f"{name} ")] == [f"{name} {n}" for n in range(50)]


@pytest.mark.parametrize("level", ["error", "info", "debug"])
def test_events_of_the_hub_are_kept_whatever_the_level_of_its_log_is(
    folder: Path, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    masking.learn([SECRET])
    logs.configure(level, "json")
    log = structlog.get_logger("test")
    try:
        with writing(folder):
            log.info("upstream_ready", upstream="git", version=2, reason=f"no {SECRET}", which=["a"])
            log.debug("upstream_stderr", upstream="git", line="x")
            log.warning("hub_wide", reason="x")
        log.warning("later", upstream="git")
    finally:
        structlog.reset_defaults()
    (record,) = ServerLogReader(folder).fresh()
    assert (record.server, record.event, record.level) == ("git", "upstream_ready", "info")
    assert record.data == {"version": 2, "reason": "no ***", "which": "['a']"}
    assert ("upstream_ready" in capsys.readouterr().err) is (level != "error")


def test_a_folder_that_cannot_be_written_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").write_text("a file")
    logs.configure("info", "json")
    try:
        with writing(log_folder(tmp_path, "/x.yaml")) as made:
            made.output("git", [b"line"])
            made.output("time", [b"line"])
    finally:
        structlog.reset_defaults()
    assert capsys.readouterr().err.count("server_log_not_written") == 1
