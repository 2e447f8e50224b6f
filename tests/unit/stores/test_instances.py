"""Who is there: locks that end with whoever holds them."""

import os
from pathlib import Path

from mcp_hub.stores.locks import Instances, lock_file, take


def test_one_that_was_never_there_is_gone(tmp_path: Path) -> None:
    one = Instances(tmp_path, "in_one")
    assert one.is_gone("in_none")
    one.enter()
    assert one.is_gone("in_none")
    assert [path.name for path in (tmp_path / "instances").iterdir()] == ["in_one.lock"]
    one.leave()


def test_who_asks_at_the_same_time_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    Instances(tmp_path, "in_own").enter()
    left = tmp_path / "instances" / "in_left.lock"
    asks = lock_file(left)
    assert take(asks, shared=True)
    assert Instances(tmp_path, "in_other").is_gone("in_left")
    os.close(asks)


def test_one_is_there_until_it_leaves(tmp_path: Path) -> None:
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


def test_what_others_left_behind_is_cleared_away_but_nothing_else(tmp_path: Path) -> None:
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
