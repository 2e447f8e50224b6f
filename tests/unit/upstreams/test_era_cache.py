import json
import os
from pathlib import Path

import pytest

from mcp_hub.types import Era
from mcp_hub.upstreams.peer.era_cache import EraCache, server_key


def test_what_was_put_is_known_to_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "state" / "eras.json"
    memory = EraCache(path)
    memory.put("a", Era.HANDSHAKE)
    memory.put("b", Era.MODERN)
    memory.put("a", Era.MODERN)
    for known in (memory, EraCache(path)):
        assert (known.get("a"), known.get("b"), known.get("c")) == (Era.MODERN, Era.MODERN, None)
    assert [file.name for file in path.parent.iterdir()] == ["eras.json"], "nothing half-written stays"


def test_what_was_forgotten_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    memory = EraCache(path)
    memory.put("a", Era.HANDSHAKE)
    memory.forget("a")
    memory.forget("never known")
    assert memory.get("a") is EraCache(path).get("a") is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"5", b"null", b'{"a":5}', b'{"a":"stone age"}', b"\xff\xfe"])
def test_a_file_that_makes_no_sense_is_nothing_known(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "eras.json"
    path.write_bytes(text)
    memory = EraCache(path)
    assert memory.get("a") is None
    memory.put("a", Era.MODERN)
    assert EraCache(path).get("a") is Era.MODERN


def test_a_place_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    memory = EraCache(tmp_path / "file" / "eras.json")
    memory.put("a", Era.MODERN)
    assert memory.get("a") is Era.MODERN


def test_the_oldest_verdicts_make_room(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    path.write_text(json.dumps({f"k{number}": "modern" for number in range(500)}))
    memory = EraCache(path)
    memory.put("new", Era.MODERN)
    assert memory.get("k0") is None and memory.get("k1") is Era.MODERN
    assert len(json.loads(path.read_text())) == 500


def test_a_server_is_named_by_what_is_run() -> None:
    keys = {server_key("uvx", ["a"]), server_key("uvx", ["a", ""]), server_key("uvx a", []), server_key("uvx", ["b"])}
    assert len(keys) == 4
    assert server_key("uvx", ["a"]) == server_key("uvx", ("a",))
    assert server_key("\udcff", [])  # a path need not be text


def test_who_asks_is_remembered_beside_the_era(tmp_path: Path) -> None:
    memory = EraCache(tmp_path / "eras.json")
    memory.put("a", Era.HANDSHAKE)
    assert not memory.is_interactive("a")
    memory.put_interactive("a")
    again = EraCache(tmp_path / "eras.json")
    assert again.is_interactive("a") and not again.is_interactive("b")
    assert again.get("a") is Era.HANDSHAKE and again.get("a asks") is None
    again.forget("a")
    assert again.is_interactive("a")


def test_the_file_is_for_nobody_elses_eyes(tmp_path: Path) -> None:
    path = tmp_path / "state" / "eras.json"
    mask = os.umask(0o022)
    try:
        EraCache(path).put("a", Era.MODERN)
        path.chmod(0o644)  # as it was written before
        path.with_suffix(f".{os.getpid()}").write_text("left by a hub that was killed")
        EraCache(path).put("b", Era.MODERN)
    finally:
        os.umask(mask)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert EraCache(path).get("a") is Era.MODERN
