"""The audit file: its chain through restarts, rotation, full disks and the hands of others; and its verification."""

import errno
import os
import resource
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_hub.stores.audit import AuditReport, Chain, chains, generations, numbered, unwritten, verify
from mcp_hub.stores.audit_file import CALLS, AuditFile

ABOUT = b'"time":"2026-01-01T00:00:00.000Z"'


def opened(folder: Path, size: int = 1 << 20, count: int = 3) -> AuditFile:
    audit = AuditFile(folder / "audit.jsonl", size, count, folder / "state")
    audit.claim()
    return audit


def put(audit: AuditFile, count: int, first: int = 0) -> None:
    """Counts and writes so many records."""
    audit.counts.slots[CALLS] += count
    records = deque(b'"time":"2026-01-01T00:00:01.000Z","event":"call","n":%d' % (first + n) for n in range(count))
    audit.write(records, ABOUT)
    assert not records


def abandon(audit: AuditFile) -> None:
    """As a killed process leaves it."""
    audit._close()
    assert audit._lock is not None
    os.close(audit._lock)
    audit.counts.close()


def report(folder: Path) -> AuditReport:
    return verify(generations(folder / "audit.jsonl"), set())


def waiting(folder: Path) -> int:
    """Records that were counted and have no line yet."""
    return unwritten(report(folder), folder / "audit.jsonl", folder / "state")


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def test_lines_are_chained_and_private(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 5)
    audit.close(ABOUT)
    seen = report(tmp_path)
    assert (seen.lines, seen.first, seen.last, seen.losses, seen.breaks, waiting(tmp_path)) == (7, 1, 7, 0, 0, 0)
    assert seen.head == audit.chain.head
    assert seen.is_whole
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_chain_goes_through_restarts(tmp_path: Path) -> None:
    for n in range(3):
        audit = opened(tmp_path)
        put(audit, 4, 4 * n)
        audit.close(ABOUT)
    seen = report(tmp_path)
    assert (seen.lines, seen.last, seen.losses, seen.kills, seen.breaks) == (18, 18, 0, 0, 0)


def test_killed_hub_loses_only_what_was_not_written_and_the_next_one_counts_it(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 4)
    audit.counts.slots[CALLS] += 7
    abandon(audit)
    assert waiting(tmp_path) == 7
    audit = opened(tmp_path)
    put(audit, 1)
    seen = report(tmp_path)
    assert (seen.losses, seen.kills, waiting(tmp_path), seen.breaks) == (7, 1, 0, 0)
    assert b'"lost":7,"event":"start"' in lines(tmp_path / "audit.jsonl")[5]
    assert seen.last == 5 + 7 + 1 + 1


def test_killed_hub_whose_counts_were_lost_goes_on(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 4)
    abandon(audit)
    for file in (tmp_path / "state" / "audit").iterdir():
        file.unlink()
    for _ in range(2):
        audit = opened(tmp_path)
        put(audit, 2)
        audit.counts.slots[CALLS] += 3
        abandon(audit)
    audit = opened(tmp_path)
    put(audit, 1)
    seen = report(tmp_path)
    assert (seen.losses, seen.breaks, waiting(tmp_path)) == (6, 0, 0)


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 4)
    abandon(audit)
    path = tmp_path / "audit.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert (report(tmp_path).lines, waiting(tmp_path)) == (4, 1)
    audit = opened(tmp_path)
    put(audit, 1)
    seen = report(tmp_path)
    assert (seen.losses, seen.breaks, seen.is_whole) == (1, 0, True)


def test_each_changed_byte_is_found_and_its_line_named(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 6)
    audit.close(ABOUT)
    path = tmp_path / "audit.jsonl"
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        seen, number = report(tmp_path), whole.count(b"\n", 0, at) + 1
        assert not seen.is_whole or (at == len(whole) - 1 and waiting(tmp_path) == 1), at
        if seen.problems:
            assert seen.problems[0].startswith((f"{path}:{number}: ", f"{path}:{number + 1}: ")), (at, seen.problems)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda kept: kept[:3] + kept[4:], "4: line 4 is missing before it"),
        (lambda kept: kept[:2] + kept[5:], "3: lines 3 to 5 are missing before it"),
        (lambda kept: kept[:2] + kept[3:1:-1] + kept[4:], "3: line 3 is missing before it"),
        (lambda kept: [*kept[:3], kept[2], *kept[3:]], "4: line 3 was changed"),
        (lambda kept: kept[1:], "1: lines before it are missing: it does not begin a file"),
        (lambda kept: [*kept[:2], b"{}", *kept[2:]], "3: is not a line of the audit"),
        (lambda kept: [*kept[:2], b"x" * (2 << 20), *kept[2:]], "3: is longer than a line of the audit"),
    ],
)  # fmt: skip
def test_removed_and_moved_lines_are_found(tmp_path: Path, change: object, problem: str) -> None:
    audit = opened(tmp_path)
    put(audit, 6)
    audit.close(ABOUT)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in change(lines(path))))  # type: ignore[operator]
    seen = report(tmp_path)
    assert seen.problems[0] == f"{path}:{problem}"
    assert not seen.is_whole


def test_chain_goes_on_over_rotated_files_and_the_oldest_go(tmp_path: Path) -> None:
    audit = opened(tmp_path, size=2000, count=3)
    for n in range(100):
        put(audit, 1, n)
    audit.close(ABOUT)
    files = generations(tmp_path / "audit.jsonl")
    assert [file.name for file in files] == ["audit.jsonl.3", "audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"]
    assert all(file.stat().st_size < 2400 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    seen = report(tmp_path)
    assert (seen.losses, seen.breaks, seen.missing) == (0, 0, 0)
    assert seen.first > 1
    files[1].unlink()
    seen = report(tmp_path)
    assert seen.missing > 0
    assert "missing before it" in seen.problems[0]


def test_file_that_others_have_cut_is_noticed_and_the_chain_goes_on(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 6)
    path = tmp_path / "audit.jsonl"
    whole = path.read_bytes()
    os.truncate(path, 0)
    put(audit, 2)
    seen = report(tmp_path)
    assert (seen.first, seen.missing, seen.breaks, seen.losses) == (8, 7, 1, 0)
    assert b'"event":"cut"' in path.read_bytes()
    assert b'"gone":7' in path.read_bytes()
    (tmp_path / "audit.jsonl.1").write_bytes(whole)  # as of a program that copies a log and cuts it
    assert report(tmp_path).is_whole
    (tmp_path / "audit.jsonl.1").unlink()
    os.truncate(path, path.stat().st_size - 10)
    put(audit, 1)
    seen = report(tmp_path)
    assert seen.missing == 8
    assert seen.problems[1:] == [f"{path}:3: line 10 is missing before it"]


def test_file_that_others_have_moved_is_begun_anew_and_the_chain_goes_on(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 3)
    path = tmp_path / "audit.jsonl"
    path.rename(tmp_path / "audit.jsonl.1")
    put(audit, 3)
    assert report(tmp_path).is_whole
    path.unlink()
    put(audit, 3)
    assert report(tmp_path).missing == 4


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_leaves_whole_lines_and_the_rest_is_written_later(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 3)
    records = deque(b'"event":"call","n":%d' % n for n in range(50))
    audit.counts.slots[CALLS] += 50
    with largest_file((tmp_path / "audit.jsonl").stat().st_size + 500), pytest.raises(OSError) as problem:
        audit.write(records, ABOUT)
    assert problem.value.errno == errno.EFBIG
    assert (tmp_path / "audit.jsonl").read_bytes().endswith(b"}\n")
    assert report(tmp_path).breaks == 0
    audit.write(records, ABOUT)
    seen = report(tmp_path)
    assert (seen.lines, seen.losses, seen.breaks, waiting(tmp_path)) == (54, 0, 0, 0)


def test_file_that_cannot_be_opened_again_leaves_descriptors_of_others_alone(tmp_path: Path) -> None:
    audit, path = opened(tmp_path), tmp_path / "audit.jsonl"
    put(audit, 3)
    path.rename(tmp_path / "audit.jsonl.1")
    path.mkdir()
    records = deque([b'"n":1'])
    audit.counts.slots[CALLS] += 1
    with pytest.raises(OSError):
        audit.write(records, ABOUT)
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError):
            audit.write(records, ABOUT)
        os.fstat(other)  # not closed by the audit
        path.rmdir()
        audit.write(records, ABOUT)
    finally:
        os.close(other)
    assert (report(tmp_path).lines, report(tmp_path).is_whole) == (6, True)


@pytest.mark.parametrize("ends", [False, True])
def test_file_that_was_begun_on_a_full_disk_begins_with_a_line_of_its_own(tmp_path: Path, ends: bool) -> None:
    audit, path = opened(tmp_path, size=500), tmp_path / "audit.jsonl"
    put(audit, 1)
    while path.stat().st_size < 500:
        put(audit, 1)
    records = deque([b'"n":1'])
    audit.counts.slots[CALLS] += 1
    with largest_file(10), pytest.raises(OSError):
        audit.write(records, ABOUT)
    assert path.read_bytes() == b""
    if ends:
        audit.close(ABOUT)
    else:
        audit.write(records, ABOUT)
    assert report(tmp_path).is_whole
    for older in generations(path)[:-1]:
        older.unlink()
    assert report(tmp_path).is_whole, "the oldest files go after a time"


def test_folder_that_cannot_be_written_is_an_error_and_the_records_before_it_are_counted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    audit = AuditFile(tmp_path / "file" / "audit.jsonl", 1 << 20, 3, tmp_path / "state")
    with pytest.raises(OSError):
        audit.claim()
    audit.counts.slots[CALLS] += 2
    (tmp_path / "file").unlink()
    records = deque([b'"n":1', b'"n":2'])
    audit.write(records, ABOUT)
    audit.close(ABOUT)
    path = tmp_path / "file" / "audit.jsonl"
    seen = verify([path], set())
    assert (seen.lines, seen.losses, unwritten(seen, path, tmp_path / "state")) == (4, 0, 0)


def test_hubs_beside_each_other_have_files_of_their_own(tmp_path: Path) -> None:
    hubs = [opened(tmp_path) for _ in range(3)]
    for hub in hubs:
        put(hub, 2)
    hubs[0].close(ABOUT)
    again = opened(tmp_path)
    put(again, 2)
    assert again.path == hubs[0].path
    path = tmp_path / "audit.jsonl"
    assert list(chains(path)) == [[path], [numbered(path, 2)], [numbered(path, 3)]]
    assert numbered(path, 2).name == "audit-2.jsonl"
    assert all(verify(files, set()).is_whole for files in chains(path))


def test_file_with_a_strange_end_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for text in (b"not ours\n", b"x" * (3 << 20), b'{"seq":1,"chain":"x"}\n'):
        path.write_bytes(text)
        audit = opened(tmp_path)
        put(audit, 2)
        audit.close(ABOUT)
        assert report(tmp_path).is_whole
        assert [aside.read_bytes() for aside in tmp_path.glob("*.corrupt-*")].count(text) == 1
        path.unlink()


def test_removed_file_is_begun_with_the_next_number(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 3)
    audit.close(ABOUT)
    (tmp_path / "audit.jsonl").unlink()
    audit = opened(tmp_path)
    put(audit, 1)
    seen = report(tmp_path)
    assert (seen.first, seen.losses, waiting(tmp_path)) == (6, 0, 0)


def test_pipe_at_the_place_of_the_file_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "audit.jsonl")
    audit = opened(tmp_path)
    put(audit, 1)
    assert report(tmp_path).is_whole


def test_heads_of_the_log_are_found(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 3)
    head = audit.chain.head
    put(audit, 3)
    heads = {head, "f" * 64}
    verify(generations(tmp_path / "audit.jsonl"), heads)
    assert heads == {"f" * 64}


def test_lost_records_come_before_the_next_line() -> None:
    chain = Chain()
    chain.losses = 3
    assert chain.line(b'"n":1').startswith(b'{"seq":4,"lost":3,"n":1,"chain":"')
    assert chain.line(b'"n":1').startswith(b'{"seq":5,"n":1,')


def test_removed_lock_is_taken_again_before_the_next_line(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 2)
    (tmp_path / "audit.jsonl.lock").unlink()
    put(audit, 2, 2)
    second = opened(tmp_path)
    assert second.path.name == "audit-2.jsonl", "another hub finds it taken"
    put(audit, 1, 4)
    for each in (audit, second):
        each.close(ABOUT)
    seen = report(tmp_path)
    assert (seen.lines, seen.losses, seen.is_whole) == (7, 0, True)


def test_file_whose_removed_lock_another_hub_has_taken_is_left_to_that_hub(tmp_path: Path) -> None:
    audit = opened(tmp_path)
    put(audit, 2)
    (tmp_path / "audit.jsonl.lock").unlink()
    second = opened(tmp_path)
    for _ in range(2):
        assert second.path == audit.path
        with pytest.raises(OSError, match="Restart this hub"):
            put(audit, 1, 2)
        put(second, 1, 3)
    second.close(ABOUT)
    with pytest.raises(OSError, match="Restart this hub"):
        put(audit, 1, 4)
    assert report(tmp_path).is_whole
    abandon(audit)
