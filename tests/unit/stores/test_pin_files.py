"""Small files that several processes change: whole or not at all, one after the other, for nobody else's eyes."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_hub.stores import keyed_files
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.stores.locks import lock_file, take

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


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
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
