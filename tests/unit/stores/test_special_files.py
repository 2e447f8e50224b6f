"""A pipe in place of a file of the hub: set aside without being opened, and the hub does without it or begins anew."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_hub.stores.documents import DocumentLimits
from mcp_hub.stores.keyed_files import KeyedFiles, stored_key
from mcp_hub.stores.locks import Instances, lock_file, open_plain
from mcp_hub.stores.long_results import _FileDocuments
from mcp_hub.stores.sqlite.store import FILE
from mcp_hub.types import Era
from mcp_hub.upstreams.auth.grants import GrantStore
from mcp_hub.upstreams.lists.list_reader import ListFile
from mcp_hub.upstreams.peer.era_cache import EraCache
from tests.unit.stores.event_stores import new_failsafe, opened, works

_HANG = 30.0
"""Seconds after which an opening counts as one that never returns."""


def returned(work: Callable[[], object]) -> object:
    """The result of what must not wait for the other end of a pipe."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()
    thread.join(_HANG)
    assert not thread.is_alive(), "it waits for somebody to open the pipe"
    (result,) = results
    return result


def aside_in(folder: Path) -> Path:
    """The only file of the folder that was set aside."""
    (aside,) = folder.glob("*.corrupt-*")
    return aside


def replace_only_file(folder: Path) -> None:
    """A pipe in place of the only file of the folder."""
    (file,) = folder.iterdir()
    file.unlink()
    os.mkfifo(file)


def key_of(folder: Path) -> bytes:
    return stored_key(KeyedFiles(folder), "key")


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("a.json", lambda folder: KeyedFiles(folder).read("a")),
        ("a.lock", lambda folder: KeyedFiles(folder).update("a", lambda text: b"new")),
        (f"a.{os.getpid()}", lambda folder: KeyedFiles(folder).update("a", lambda text: b"new")),
        ("a.lock", lambda folder: os.close(lock_file(folder / "a.lock"))),
        ("a.json", lambda folder: GrantStore(folder).load("a")),
        ("a.json", lambda folder: ListFile(folder, "server", "a").read()),
        ("eras.json", lambda folder: EraCache(folder / "eras.json").needed("a")),
    ],
    ids=["keyed file", "keyed lock", "keyed replacement", "lock", "login", "list", "eras"],
)
def test_a_pipe_is_never_opened_and_counts_as_no_file(
    tmp_path: Path, name: str, work: Callable[[Path], object]
) -> None:
    os.mkfifo(tmp_path / name)
    assert returned(lambda: work(tmp_path)) is None
    assert not (tmp_path / name).is_fifo()


def test_a_pipe_in_place_of_another_hubs_lock_means_that_it_is_gone(tmp_path: Path) -> None:
    (tmp_path / "instances").mkdir()
    os.mkfifo(tmp_path / "instances" / "in_x.lock")
    assert Instances(tmp_path, "in_own").is_gone("in_x")
    assert aside_in(tmp_path / "instances").is_fifo(), "nobody opened or removed it"


def test_what_is_set_aside_keeps_its_name_and_says_when(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    files = KeyedFiles(tmp_path)
    files.update("a", lambda text: b"anew" if text is None else None)
    assert aside_in(tmp_path).is_fifo() and files.read("a") == b"anew"


def test_a_key_is_made_anew_and_lasts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key.json")
    first = returned(lambda: key_of(tmp_path))
    assert first == key_of(tmp_path)


def test_an_era_is_remembered_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "eras.json")
    eras = EraCache(tmp_path / "eras.json")
    returned(lambda: eras.learn("a", Era.MODERN, speaks=True))
    assert EraCache(tmp_path / "eras.json").eras_of("a").may(Era.MODERN)


def test_a_socket_and_a_link_to_a_device_are_set_aside_too(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        for name in ("device", "socket"):
            with pytest.raises(FileNotFoundError):
                open_plain(tmp_path / name, os.O_RDONLY)
    assert sorted(path.name.partition(".")[0] for path in tmp_path.iterdir()) == ["device", "socket"]


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", ".lock"])
async def test_streams_are_durable_beside_a_pipe_that_was_set_aside(tmp_path: Path, end: str) -> None:
    os.mkfifo(tmp_path / f"{FILE}{end}")
    async with opened(store := new_failsafe(tmp_path)):
        assert store.log.is_durable
        await works(store)
    assert aside_in(tmp_path).is_fifo()


@pytest.mark.anyio
async def test_a_pipe_in_place_of_a_long_result_is_no_result(tmp_path: Path) -> None:
    documents = _FileDocuments(tmp_path, DocumentLimits(), lambda: 0.0)
    id_ = await documents.put("alice", b"text")
    replace_only_file(tmp_path)
    assert await documents.read("alice", id_, 0, 4) is None
    assert await documents.put("alice", b"text") == id_
    assert await documents.read("alice", id_, 0, 4) == (b"text", 4)
