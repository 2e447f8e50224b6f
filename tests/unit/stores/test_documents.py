"""What every place for long results promises."""

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from mcp_hub.app.limits import STORES
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.documents import DocumentLimits, Documents, document_id, is_document_id
from mcp_hub.stores.long_results import DOCUMENTS, _FileDocuments
from tests.unit.stores import event_stores
from tests.unit.stores.redis_stores import SERVERS, of_type

pytestmark = pytest.mark.anyio

LIMITS: Final = DocumentLimits(
    ttl=100, principal_bytes=5000, principal_count=4, total_bytes=12_000, total_count=9, memory_bytes=12_000
)
_ALL: Final = 1 << 60


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(
    params=[pytest.param(type_, marks=pytest.mark.processes) if type_ in SERVERS else type_ for type_ in STORES]
)
async def documents(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Documents]:
    async with event_stores.opened(store := of_type(request.param, tmp_path, StoreLimits())):
        if store.replicas is not None:
            yield store.replicas.documents(LIMITS, clock)
            return
        documents = STORES[request.param].documents(tmp_path, LIMITS, clock)
        await documents.open()
        yield documents


async def kept(documents: Documents, principal: str, bodies: list[bytes]) -> list[bool]:
    """Which of them are still there, whole."""
    found = [await documents.read(principal, document_id(body), 0, _ALL) for body in bodies]
    assert all(part is None or part == (body, len(body)) for part, body in zip(found, bodies, strict=True))
    return [part is not None for part in found]


async def put(documents: Documents, clock: Clock, principal: str, bodies: list[bytes]) -> None:
    for body in bodies:
        clock.now += 1
        assert await documents.put(principal, body) == document_id(body)


def bodies(count: int, size: int, mark: str = "x") -> list[bytes]:
    return [f"{mark}{number:03}".encode().ljust(size, b".") for number in range(count)]


def test_an_id_is_that_of_the_content() -> None:
    assert document_id(b"a") == document_id(b"a") != document_id(b"b")
    assert all(is_document_id(document_id(body)) for body in bodies(100, 10))
    odd = ["", "r", "../r", document_id(b"a") + "\n", document_id(b"a").upper(), "é" * 13]
    assert not any(map(is_document_id, odd))


async def test_parts_are_read_from_any_place(documents: Documents) -> None:
    id_ = await documents.put("me", b"0123456789")
    for offset, size, data in ((0, 3, b"012"), (4, 99, b"456789"), (10, 1, b""), (99, 1, b""), (3, 0, b"")):
        assert await documents.read("me", id_, offset, size) == (data, 10)
    assert await documents.read("me", await documents.put("me", b""), 0, 5) == (b"", 0)


async def test_what_is_foreign_is_as_unknown_as_what_never_was(documents: Documents) -> None:
    mine = await documents.put("me", b"mine")
    unknown = ((mine, "you"), (mine, ""), *((id_, "me") for id_ in (document_id(b"other"), "../" + mine, "", "r\0")))
    for id_, principal in unknown:
        assert await documents.read(principal, id_, 0, 9) is None
    await documents.put("you", b"mine")
    assert await documents.read("you", mine, 0, 9) == (b"mine", 4)


async def test_a_document_is_kept_for_its_time_from_when_it_was_put_last(documents: Documents, clock: Clock) -> None:
    first, second = await documents.put("me", b"first"), await documents.put("me", b"second")
    clock.now += 99
    assert await documents.put("me", b"first") == first
    clock.now += 1
    assert await documents.read("me", second, 0, 9) is None
    clock.now += 98
    assert await documents.read("me", first, 0, 9) == (b"first", 5)
    clock.now += 1
    assert await documents.read("me", first, 0, 9) is None


async def test_the_principals_own_oldest_make_room(documents: Documents, clock: Clock) -> None:
    others = bodies(2, 2000, "o")
    await put(documents, clock, "you", others)
    small, large = bodies(6, 100), bodies(4, 1600, "l")
    await put(documents, clock, "me", small)
    assert await kept(documents, "me", small) == [False, False, True, True, True, True]
    await put(documents, clock, "me", large)
    assert await kept(documents, "me", small + large) == [False] * 7 + [True] * 3
    assert await kept(documents, "you", others) == [True, True]


@pytest.mark.parametrize("documents", [type_ for type_ in STORES if type_ not in SERVERS], indirect=True)
async def test_anybodys_oldest_make_room_for_the_whole(documents: Documents, clock: Clock) -> None:
    for principal in "abcd":
        await put(documents, clock, principal, bodies(2, 2400))
    there = [await kept(documents, principal, bodies(2, 2400)) for principal in "abcd"]
    assert there == [[False, False], [False, True], [True, True], [True, True]]
    for principal in "efg":
        await put(documents, clock, principal, bodies(4, 10))
    assert sum([sum(await kept(documents, principal, bodies(4, 10))) for principal in "efg"]) == 9


async def test_what_is_too_large_is_refused_and_drives_out_nothing(documents: Documents, clock: Clock) -> None:
    some = bodies(4, 1200)
    await put(documents, clock, "me", some)
    with pytest.raises(StoreError, match="5001 bytes cannot be kept: the bound is 5000"):
        await documents.put("me", b"x" * 5001)
    assert all(await kept(documents, "me", some))
    await documents.put("me", b"x" * 5000)
    assert await kept(documents, "me", [b"x" * 5000]) == [True]


# -- in files


async def opened(folder: Path, clock: Clock) -> _FileDocuments:
    documents = _FileDocuments(folder / DOCUMENTS, LIMITS, clock)
    await documents.open()
    return documents


@pytest.fixture
async def files(tmp_path: Path, clock: Clock) -> _FileDocuments:
    return await opened(tmp_path, clock)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_another_hub_on_the_folder_reads_it_too_and_so_does_the_next_one(
    files: _FileDocuments, tmp_path: Path, clock: Clock
) -> None:
    other = await opened(tmp_path, clock)
    id_ = await files.put("me", b"text")
    assert await other.read("me", id_, 1, 2) == (b"ex", 4)
    await other.put("me", b"text")
    assert len(names(tmp_path / DOCUMENTS)) == 1
    restarted = await opened(tmp_path, clock)
    assert await restarted.read("me", id_, 0, 9) == (b"text", 4)


async def test_nobody_else_may_look_into_it(files: _FileDocuments, tmp_path: Path) -> None:
    await files.put("me", b"text")
    (file,) = (tmp_path / DOCUMENTS).iterdir()
    assert (tmp_path / DOCUMENTS).stat().st_mode & 0o777 == 0o700 and file.stat().st_mode & 0o777 == 0o600
    assert "me" not in file.name.split("-")


def truncated(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def longer(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"x")


def garbled(file: Path) -> None:
    file.write_bytes(b"\xff" * file.stat().st_size)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def linked(file: Path) -> None:
    outside = file.parent.parent / f"outside {file.name}"
    file.rename(outside)
    file.symlink_to(outside)


DAMAGES: Final = [truncated, longer, garbled, emptied, linked]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_damaged_file_is_not_found_and_goes(
    files: _FileDocuments, tmp_path: Path, clock: Clock, damage: Callable[[Path], None]
) -> None:
    id_ = await files.put("me", b"text of some length")
    unread = await files.put("me", b"another text")
    sound = await files.put("me", b"sound")
    for file in list((tmp_path / DOCUMENTS).iterdir()):
        if file.name.endswith((id_, unread)):
            damage(file)
            os.utime(file, (clock.now + 50, clock.now + 50), follow_symlinks=False)
    assert await files.read("me", id_, 0, 99) is None
    await opened(tmp_path, clock)
    assert [name[-13:] for name in names(tmp_path / DOCUMENTS)] == [sound]
    assert await files.put("me", b"text of some length") == id_
    assert await files.read("me", id_, 0, 99) == (b"text of some length", 19)


async def test_what_is_no_document_is_swept_but_for_what_is_being_written(
    files: _FileDocuments, tmp_path: Path, clock: Clock
) -> None:
    folder = tmp_path / DOCUMENTS
    fresh, stale = "." + "0" * 32 + ".new", "." + "1" * 32 + ".new"
    for name in ("notes.txt", "r" + "a" * 12, fresh, stale):
        (folder / name).write_bytes(b"x")
        os.utime(folder / name, (clock.now, clock.now))
    os.utime(folder / stale, (clock.now - 601, clock.now - 601))
    (folder / "a folder").mkdir()
    os.mkfifo(folder / ("0" * 32 + "-r" + "a" * 12))
    id_ = await files.put("me", b"text")
    assert [name for name in names(folder) if not name.endswith(id_)] == [fresh, "a folder"]


async def test_what_has_expired_is_swept_at_the_start(files: _FileDocuments, tmp_path: Path, clock: Clock) -> None:
    await files.put("me", b"old")
    clock.now += 60
    await files.put("me", b"new")
    clock.now += 41
    await opened(tmp_path, clock)
    assert [name[-13:] for name in names(tmp_path / DOCUMENTS)] == [document_id(b"new")]


async def test_a_folder_that_cannot_be_used_is_an_error_of_put(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / DOCUMENTS).write_text("a file is in the way")
    files = await opened(tmp_path, clock)
    with pytest.raises(StoreError, match="cannot be kept in .*results: "):
        await files.put("me", b"text")
    assert await files.read("me", document_id(b"text"), 0, 9) is None


async def test_a_write_that_fails_leaves_nothing_behind(
    files: _FileDocuments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mcp_hub.stores.long_results.os.replace", full)
    with pytest.raises(StoreError, match="No space left on device"):
        await files.put("me", b"text")
    assert names(tmp_path / DOCUMENTS) == []
