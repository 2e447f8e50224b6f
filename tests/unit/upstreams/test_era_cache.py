import json
import os
from pathlib import Path

import pytest

from mcp_hub.types import HANDSHAKE, MODERN
from mcp_hub.upstreams.peer.era_cache import EraCache, KnownEras, server_key

NOTHING = KnownEras()


def test_what_was_learned_is_known_to_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "state" / "eras.json"
    memory = EraCache(path)
    memory.learn("a", HANDSHAKE, speaks=True)
    memory.learn("a", MODERN, speaks=True)
    memory.learn("b", MODERN, speaks=True)
    memory.learn("b", HANDSHAKE, speaks=False)
    for found in (memory, EraCache(path)):
        assert found.eras_of("a").are_both
        assert found.eras_of("b") == KnownEras(frozenset((MODERN,)), frozenset((HANDSHAKE,)))
        assert found.eras_of("c") == NOTHING
    assert [file.name for file in path.parent.iterdir()] == ["eras.json"], "nothing half-written stays"


def test_the_last_that_was_found_out_counts() -> None:
    known = NOTHING.with_era(MODERN, speaks=True).with_era(MODERN, speaks=False).with_era(HANDSHAKE, speaks=True)
    assert known == KnownEras(frozenset((HANDSHAKE,)), frozenset((MODERN,)))


@pytest.mark.parametrize(
    ("known", "handshake", "modern"),
    [
        (NOTHING, False, False),
        (NOTHING.with_era(HANDSHAKE, speaks=True), True, False),
        (NOTHING.with_era(MODERN, speaks=True), True, True),  # nobody has asked for the other one yet
        (NOTHING.with_era(MODERN, speaks=True).with_era(HANDSHAKE, speaks=False), False, True),
        (NOTHING.with_era(MODERN, speaks=True).with_era(HANDSHAKE, speaks=True), True, True),
    ],
)
def test_era_is_worth_a_try_unless_refused_or_never_shown(known: KnownEras, handshake: bool, modern: bool) -> None:
    assert (known.may(HANDSHAKE), known.may(MODERN)) == (handshake, modern)


def test_forgotten_eras_stay_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    memory = EraCache(path)
    memory.learn("a", HANDSHAKE, speaks=True)
    memory.forget("a")
    memory.forget("never known")
    for found in (memory, EraCache(path)):
        assert found.eras_of("a") == NOTHING


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"5", b"null", b'{"a eras":5}', b'{"a eras":"+stone","a needed":"iron"}', b"\xff\xfe"]
)
def test_a_file_that_makes_no_sense_is_nothing_known(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "eras.json"
    path.write_bytes(text)
    memory = EraCache(path)
    assert memory.eras_of("a") == NOTHING
    memory.learn("a", MODERN, speaks=True)
    assert EraCache(path).eras_of("a").speaks == {MODERN}


def test_a_place_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    memory = EraCache(tmp_path / "file" / "eras.json")
    memory.learn("a", MODERN, speaks=True)
    memory.learn("b", MODERN, speaks=True)
    assert memory.eras_of("a").speaks == memory.eras_of("b").speaks == {MODERN}


def test_the_oldest_facts_make_room(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    path.write_text(json.dumps({f"k{number} eras": "+modern" for number in range(2000)}))
    memory = EraCache(path)
    memory.learn("new", MODERN, speaks=True)
    assert memory.eras_of("k0") == NOTHING and memory.eras_of("k1").speaks == {MODERN}
    assert len(json.loads(path.read_text())) == 2000


def test_hubs_that_share_the_file_keep_what_the_others_found_out(tmp_path: Path) -> None:
    one, other = EraCache(tmp_path / "eras.json"), EraCache(tmp_path / "eras.json")
    assert one.eras_of("a") == other.eras_of("b") == NOTHING
    one.learn("a", MODERN, speaks=True)
    other.learn("b", MODERN, speaks=True)
    assert all(EraCache(tmp_path / "eras.json").eras_of(key).speaks == {MODERN} for key in "ab")


def test_a_server_is_named_by_what_is_run() -> None:
    keys = {server_key("uvx", ["a"]), server_key("uvx", ["a", ""]), server_key("uvx a", []), server_key("uvx", ["b"])}
    assert len(keys) == 4
    assert server_key("uvx", ["a"]) == server_key("uvx", ("a",))
    assert server_key("\udcff", [])  # a path need not be text


def test_who_asks_is_remembered_beside_the_era(tmp_path: Path) -> None:
    memory = EraCache(tmp_path / "eras.json")
    memory.learn("a", HANDSHAKE, speaks=True)
    assert not memory.is_interactive("a")
    memory.put_interactive("a")
    again = EraCache(tmp_path / "eras.json")
    assert again.is_interactive("a") and not again.is_interactive("b")
    assert again.eras_of("a").speaks == {HANDSHAKE} and again.eras_of("a asks") == NOTHING
    again.forget("a")
    assert again.is_interactive("a")


def test_the_era_that_was_needed_last_is_written_when_the_hub_is_done(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    memory = EraCache(path)
    memory.need("a", MODERN)
    memory.need("a", HANDSHAKE)
    assert memory.needed("a") is HANDSHAKE and not path.exists()
    memory.keep_needed("a")
    memory.keep_needed("never called")
    assert EraCache(path).needed("a") is HANDSHAKE


def test_a_server_in_another_version_is_doubted_once_also_by_the_next_hub(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    memory = EraCache(path)
    memory.see("a", "git 1.0")
    memory.see("a", "git 1.0")
    assert not memory.take_doubt("a")
    memory.see("a", "git 2.0")
    memory = EraCache(path)
    assert memory.take_doubt("a") and not memory.take_doubt("a") and not EraCache(path).take_doubt("a")


def test_the_file_is_for_nobody_elses_eyes(tmp_path: Path) -> None:
    path = tmp_path / "state" / "eras.json"
    mask = os.umask(0o022)
    try:
        EraCache(path).learn("a", MODERN, speaks=True)
        path.chmod(0o644)  # as it was written before
        path.with_suffix(f".{os.getpid()}").write_text("left by a hub that was killed")
        EraCache(path).learn("b", MODERN, speaks=True)
    finally:
        os.umask(mask)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert EraCache(path).eras_of("a").speaks == {MODERN}
