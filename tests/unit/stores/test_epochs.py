"""Epochs count up for each executor, across hubs, whatever becomes of the file."""

from functools import partial
from pathlib import Path

import pytest

from mcp_hub.stores import keyed_files
from mcp_hub.stores.keyed_files import KeyedFiles, next_epoch


def test_they_go_on_in_the_next_hub_and_are_each_executors_own(tmp_path: Path) -> None:
    assert [next_epoch(KeyedFiles(tmp_path), "p", "w", 0) for _ in range(3)] == [1, 2, 3]
    assert [next_epoch(KeyedFiles(tmp_path), *of, 0) for of in (("p", "x"), ("q", "w"), ("p", "w"))] == [1, 1, 4]
    assert next_epoch(KeyedFiles(tmp_path), "p", "w", 17) == 18


def test_none_that_was_forgotten_begins_below_where_it_was(tmp_path: Path) -> None:
    few = partial(next_epoch, KeyedFiles(tmp_path), limit=2)
    assert [few("p", name, 0) for name in ("a", "a", "b", "c", "a")] == [1, 2, 1, 1, 3]
    assert few("p", "d", 0) > 1


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"floor":"x"}', b'{"epochs":{"a":1.5}}'])
def test_a_damaged_file_is_begun_anew(damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_files, "wall_time", lambda: 5.0)
    files = KeyedFiles(tmp_path)
    files.path("epochs").write_bytes(damage)
    assert [next_epoch(files, "p", "w", 0) for _ in range(2)] == [5001, 5002]


def test_where_nothing_can_be_kept_the_clock_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_files, "wall_time", lambda: 5.0)
    (tmp_path / "file").write_text("where the folder should be")
    files = KeyedFiles(tmp_path / "file")
    assert next_epoch(files, "p", "w", 0) == 5001 and next_epoch(files, "p", "w", 5001) == 5002
