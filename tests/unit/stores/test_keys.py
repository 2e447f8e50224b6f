"""The key of a state folder: one for all hubs on it, for nobody else's eyes; never a weak one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_hub.stores.keyed_files import KeyedFiles, stored_key


def test_every_hub_on_the_folder_has_the_same_key(tmp_path: Path) -> None:
    def ask(_: int) -> bytes:
        return stored_key(KeyedFiles(tmp_path / "keys"), "seal")

    with ThreadPoolExecutor(8) as pool:
        (key,) = set(pool.map(ask, range(32)))
    assert len(key) == 32 and stored_key(KeyedFiles(tmp_path / "other"), "seal") != key
    assert stored_key(KeyedFiles(tmp_path / "keys"), "another") != key


@pytest.mark.parametrize("damage", [b"", b"{}", b'"00"', b'"%s"' % (b"z" * 64), b'"%s" ' % (b"0" * 64)])
def test_a_damaged_one_is_replaced(tmp_path: Path, damage: bytes) -> None:
    files = KeyedFiles(tmp_path)
    files.path("seal").write_bytes(damage)
    assert stored_key(files, "seal") == stored_key(files, "seal") != bytes(32)


def test_what_cannot_be_kept_ends_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file where the folder should be")
    files = KeyedFiles(tmp_path / "keys")
    first = stored_key(files, "seal")
    assert len(first) == 32 and stored_key(files, "seal") != first
