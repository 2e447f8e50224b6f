"""Small files that hubs share: whole or as they were, for nobody else's eyes, replaced where damaged."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from mcp_hub.app.dashboard.past_calls import history_key
from mcp_hub.catalog.pins import read as read_approvals
from mcp_hub.cli.access.running import recorded, running_hubs
from mcp_hub.onboarding.changes.written import _KEY, ClientRecords
from mcp_hub.stores import keyed_files
from mcp_hub.stores.keyed_files import KeyedFiles, next_epoch, stored_key
from mcp_hub.stores.locks import Instances, lock_file, take
from mcp_hub.stores.server_logs import ServerLogReader
from mcp_hub.upstreams.auth.grants import GrantStore, LoginFailed
from rigs.poison.values import NASTY

COUNT = """
import sys
from pathlib import Path
from mcp_hub.stores.keyed_files import KeyedFiles
files = KeyedFiles(Path(sys.argv[1]))
for _ in range(50):
    files.update("a", lambda text: str(int(text or b"0") + 1).encode())
"""


def test_a_file_is_read_as_it_was_put(tmp_path: Path) -> None:
    files = KeyedFiles(tmp_path / "new")
    assert files.read("a") is None and files.stamp("a") is None
    files.update("a", lambda text: b"1" if text is None else b"?")
    before = files.stamp("a")
    assert files.read("a") == b"1" and files.stamp("a") == before != None  # noqa: E711 - both at once
    files.update("a", lambda text: None)
    assert files.stamp("a") == before
    files.update("a", lambda text: b"2")
    assert files.read("a") == b"2" and files.stamp("a") != before
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["a.json", "a.lock"]


def test_keyed_file_is_for_nobody_else(tmp_path: Path) -> None:
    files = KeyedFiles(tmp_path / "new")
    old = os.umask(0)
    try:
        files.update("a", lambda text: b"1")
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", *(tmp_path / "new").iterdir())}
    assert modes == {"new": 0o700, "a.json": 0o600, "a.lock": 0o600}


@pytest.mark.processes
def test_no_change_of_several_processes_and_threads_is_lost(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", COUNT, str(tmp_path)]
    others = [subprocess.Popen(argv) for _ in range(2)]
    files = KeyedFiles(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(50):
            pool.submit(files.update, "a", lambda text: str(int(text or b"0") + 1).encode())
    assert [other.wait(60) for other in others] == [0, 0]
    assert files.read("a") == b"150"


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = KeyedFiles(tmp_path)
    files.update("a", lambda text: b"1")
    with pytest.raises(ZeroDivisionError):
        files.update("a", lambda text: bytes(1 // 0))
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        files.update("a", lambda text: b"2")
    assert files.read("a") == b"1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.lock"]


def test_a_lock_that_somebody_keeps_is_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_files, "_PATIENCE", 0.05)
    held = lock_file(tmp_path / "a.lock")
    assert take(held, shared=False)
    try:
        with pytest.raises(OSError, match=r"a\.json is locked by another process"):
            KeyedFiles(tmp_path).update("a", lambda text: b"1")
    finally:
        os.close(held)


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_files, "_LARGEST", 10)
    (tmp_path / "a.json").write_bytes(b"x" * 11)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        KeyedFiles(tmp_path).read("a")


# -- the key of a folder


def test_every_hub_on_the_folder_has_the_same_key(tmp_path: Path) -> None:
    def ask(_: int) -> bytes:
        return stored_key(KeyedFiles(tmp_path / "keys"), "seal")

    with ThreadPoolExecutor(8) as pool:
        (key,) = set(pool.map(ask, range(32)))
    assert len(key) == 32 and stored_key(KeyedFiles(tmp_path / "other"), "seal") != key
    assert stored_key(KeyedFiles(tmp_path / "keys"), "another") != key


def test_key_that_cannot_be_stored_ends_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where the folder should be")
    files = KeyedFiles(tmp_path / "keys")
    first = stored_key(files, "seal")
    assert len(first) == 32 and stored_key(files, "seal") != first


# -- epochs of executors


def test_epochs_continue_in_the_next_hub_and_are_each_executors_own(tmp_path: Path) -> None:
    assert [next_epoch(KeyedFiles(tmp_path), "p", "w", 0) for _ in range(3)] == [1, 2, 3]
    assert [next_epoch(KeyedFiles(tmp_path), *of, 0) for of in (("p", "x"), ("q", "w"), ("p", "w"))] == [1, 1, 4]
    assert next_epoch(KeyedFiles(tmp_path), "p", "w", 17) == 18


def test_epoch_that_was_forgotten_begins_no_lower_than_it_was(tmp_path: Path) -> None:
    few = partial(next_epoch, KeyedFiles(tmp_path), limit=2)
    assert [few("p", name, 0) for name in ("a", "a", "b", "c", "a")] == [1, 2, 1, 1, 3]
    assert few("p", "d", 0) > 1


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"floor":"x"}', b'{"epochs":{"a":1.5}}'])
def test_damaged_file_of_epochs_is_begun_anew(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_files, "wall_time", lambda: 5.0)
    files = KeyedFiles(tmp_path)
    files.path("epochs").write_bytes(damage)
    assert [next_epoch(files, "p", "w", 0) for _ in range(2)] == [5001, 5002]


def test_epochs_follow_the_clock_where_nothing_can_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_files, "wall_time", lambda: 5.0)
    (tmp_path / "file").write_text("where the folder should be")
    files = KeyedFiles(tmp_path / "file")
    assert next_epoch(files, "p", "w", 0) == 5001 and next_epoch(files, "p", "w", 5001) == 5002


# -- instances


def test_instance_that_was_never_there_is_gone(tmp_path: Path) -> None:
    one = Instances(tmp_path, "in_one")
    assert one.is_gone("in_none")
    one.enter()
    assert one.is_gone("in_none")
    assert [path.name for path in (tmp_path / "instances").iterdir()] == ["in_one.lock"]
    one.leave()


def test_instance_that_only_asks_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    Instances(tmp_path, "in_own").enter()
    left = tmp_path / "instances" / "in_left.lock"
    asks = lock_file(left)
    assert take(asks, shared=True)
    assert Instances(tmp_path, "in_other").is_gone("in_left")
    os.close(asks)


def test_instance_is_there_until_it_leaves(tmp_path: Path) -> None:
    one, two, three = (Instances(tmp_path, f"in_{name}") for name in ("one", "two", "three"))
    one.enter()
    two.enter()
    assert [three.is_gone("in_one"), two.is_gone("in_one"), one.is_gone("in_one")] == [False] * 3
    one.enter()
    one.leave()
    one.leave()
    assert three.is_gone("in_one")
    assert not three.is_gone("in_two")
    two.leave()


def test_locks_that_others_left_are_cleared_away_but_nothing_else(tmp_path: Path) -> None:
    living = Instances(tmp_path, "in_living")
    living.enter()
    folder = tmp_path / "instances"
    (folder / "in_dead.lock").touch()
    (folder / "notes.txt").touch()
    own = Instances(tmp_path, "in_own")
    own.enter()
    assert sorted(path.name for path in folder.iterdir()) == ["in_living.lock", "in_own.lock", "notes.txt"]
    living.leave()
    own.leave()


# -- contents that no hub has written

SHAPES = {
    "a short key": b'"00"',
    "a key of other letters": b'"%s"' % (b"z" * 64),
    "a key and a blank": b'"%s" ' % (b"0" * 64),
    "an array": b"[]",
    "text in place of a number": b'{"epochs":{"x":"y"},"floor":"z"}',
    "a number that does not fit": b'{"floor":%d,"epochs":{"x":%d}}' % (10**30, 2**64 - 1),
    "a number that is the last to fit": b'{"floor":%d}' % (2**64 - 1),
    "a negative number": b'{"floor":-5,"epochs":{}}',
    "a number with a fraction": b'{"floor":1e300}',
    "invalid UTF-8 in a text": b'{"epochs":{"\xff":1},"url":"\xff","time":"\xff","pid":1}',
    "half of a surrogate pair": b'{"epochs":{"\\ud800":1}}',
    "depth in a field": b'{"other":' + b"[" * 100_000,
    "depth in a known field": b'{"time":"t","server":"s","hub":1,"data":{"a":' + b"[" * 100_000,
}
CONTENTS = NASTY | SHAPES


def test_hashes_have_the_replicas_key_as_soon_as_there_is_one(tmp_path: Path) -> None:
    store = Mock(replicas=Mock(secret=None))
    find = history_key({"MCP_HUB_STATE_DIR": str(tmp_path)}, store)
    own = find()
    store.replicas.secret = b"s" * 32
    assert find() == b"s" * 32 != own
    store.replicas = None
    assert find() == own == stored_key(KeyedFiles(tmp_path / "keys"), "history")


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_small_file_with_other_contents_counts_as_lost(tmp_path: Path, content: bytes) -> None:
    files = KeyedFiles(tmp_path)
    files.update("epochs", lambda _: content)
    first = next_epoch(files, "p", "x", 0)
    assert 0 < first < next_epoch(files, "p", "x", 0) < 2**63
    files.update("key", lambda _: content)
    key = stored_key(files, "key")
    assert len(key) == 32 and stored_key(files, "key") == key != bytes(32)
    with suppress(ValueError):
        read_approvals(content)
    (tmp_path / "grant.json").write_bytes(content)
    with pytest.raises(LoginFailed, match="is damaged"):
        GrantStore(tmp_path).load("grant")
    assert list(ServerLogReader(tmp_path).parsed(content + b"\n")) == []
    KeyedFiles(tmp_path / "clients").update(_KEY, lambda _: content)
    assert ClientRecords(tmp_path).entries() == []


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_record_of_a_hub_with_other_contents_hides_no_other_hub(tmp_path: Path, content: bytes) -> None:
    env = {"MCP_HUB_STATE_DIR": str(tmp_path)}
    with recorded("place", "http://127.0.0.1:1", env):
        [good] = tmp_path.rglob("*.json")
        other = good.with_name(good.name.replace(str(os.getpid()), "1"))
        held = lock_file(other)
        assert take(held, shared=False)
        other.write_bytes(content)
        assert [hub.url for hub in running_hubs("place", env)] == ["http://127.0.0.1:1"]
        os.close(held)
