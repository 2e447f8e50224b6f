"""Lists on disk: the bytes come back, what is no list of ours is none, several hubs may write, all of it bounded."""

import json
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from mcp_hub.types import CacheHint, Era, Kind, Snapshot, UpstreamState
from mcp_hub.upstreams.lists.list_reader import CachedList, ListFile, list_key
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.toy_servers import kept

TOOLS = (b'{"name":"a",  "inputSchema":{"type":"object"}, "x":1e400}', b'{ "name" : "\\u0062" }')


def last(*tools: bytes, at: float = 1.5, server: str = "git") -> CachedList:
    snapshot = Snapshot(
        server,
        Era.MODERN,
        {Kind.TOOL: tools or TOOLS, Kind.TEMPLATE: (b"{}",), Kind.PROMPT: ()},
        {Kind.TOOL: CacheHint(300, True), Kind.PROMPT: CacheHint()},
        {"tools": {"listChanged": True}, "odd": [None, 1.5]},
        "say please ☃",
        ("tools: more than 9 entries; the rest is left out",),
    )
    return CachedList(snapshot, "2026-07-28", {"name": "git", "version": "1"}, at)


def place(folder: Path, server: str = "git", **bounds: int) -> ListFile:
    return ListFile(folder / "lists", server, list_key(server), **bounds)


def test_what_was_written_is_read_byte_for_byte_by_the_next_hub(tmp_path: Path) -> None:
    assert place(tmp_path).read() is None
    place(tmp_path).write(last())
    assert place(tmp_path).read() == last()
    place(tmp_path).write(last(b'{"name":"c"}', at=2.0))
    assert place(tmp_path).read() == last(b'{"name":"c"}', at=2.0)


def test_nobody_else_may_read_it_and_its_name_is_a_digest(tmp_path: Path) -> None:
    file = place(tmp_path)
    file.write(last())
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.folder.stat().st_mode) == 0o700
    assert list_key("git", "npx", ["--token", "hunter22"]) not in ("hunter22",)
    assert [path.name for path in file.folder.iterdir()] == [f"{list_key('git')}.json"]


def test_keys_tell_entries_apart() -> None:
    of_a = [("a", "x", ["y", "z"]), ("a", "x", ["y z"]), ("a", "x", ["y"], ["z"]), ("a", None)]
    assert len({list_key(*entry) for entry in [*of_a, ("b", "x", ["y", "z"])]}) == 5
    assert list_key("a", "x", ["y"]) == list_key("a", "x", ["y"])


GARBLED = (b"", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"format":2,"key":"')


def changed(**members: object) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **members}))

    return damage


def of_another_server(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"server":"git"', b'"server":"mail"'))


def link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        *(partial(Path.write_bytes, data=text) for text in GARBLED),
        *(changed(format=1), changed(key="0" * 32), changed(lists={"tool": "x"}), changed(lists={"gadget": []})),
        changed(more=1),
        *(of_another_server, link, folder),
    ],
)
def test_other_files_are_ignored_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None]
) -> None:
    file = place(tmp_path)
    file.write(last(b'{"name":"c"}'))
    assert file.read() is not None and not "".join(capsys.readouterr())
    damage(file.path)
    assert file.read() is None
    said = "".join(capsys.readouterr())
    assert "last_list_unread" in said and file.key in said


def test_list_over_the_bound_goes_with_the_older_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place(tmp_path, most_bytes=2000)
    file.write(last())
    assert file.read() is not None
    file.write(last(b'{"name":"%s"}' % (b"x" * 2000)))
    assert file.read() is None and not file.path.exists()
    assert "last_list_too_long" in "".join(capsys.readouterr())


def test_a_file_over_the_bound_is_not_even_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place(tmp_path).write(last())
    assert place(tmp_path, most_bytes=100).read() is None
    assert "longer than 100 bytes" in "".join(capsys.readouterr())


def test_the_list_that_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    for age, name in enumerate(names):
        place(tmp_path, name).write(last(server=name))
        os.utime(place(tmp_path, name).path, (1000 + age, 1000 + age))
    assert place(tmp_path, "a").read() is not None  # used, and so the newest
    abandoned = tmp_path / "lists" / f"{list_key('z')}.json.{'0' * 16}"
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    (tmp_path / "lists" / "notes.txt").write_text("not ours")
    place(tmp_path, "e", most_files=3).write(last(server="e"))
    left = [name for name in [*names, "e"] if place(tmp_path, name).path.exists()]
    assert left == ["a", "d", "e"]
    assert not abandoned.exists() and (tmp_path / "lists" / "notes.txt").exists()


def test_names_of_the_folder_are_read_when_a_quarter_of_its_room_may_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans: list[int] = []
    scandir = os.scandir

    def counted(folder: Path) -> object:
        scans.append(len(os.listdir(folder)))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counted)
    for number in range(120):
        place(tmp_path, f"s{number}", most_files=100).write(last(server=f"s{number}"))
        assert len(os.listdir(tmp_path / "lists")) <= 100
    assert scans[:4] == [1, 26, 44, 58] and len(scans) < 60


def test_hubs_that_write_at_once_leave_one_whole_list(tmp_path: Path) -> None:
    lists = [last(b'{"name":"%d","d":"%s"}' % (n, b"x" * 50_000), at=float(n)) for n in range(4)]
    place(tmp_path).write(lists[0])

    def write(own: CachedList) -> None:
        for _ in range(25):
            place(tmp_path).write(own)

    writers = [threading.Thread(target=write, args=[own]) for own in lists]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert place(tmp_path).read() in lists
    for writer in writers:
        writer.join()
    assert place(tmp_path).read() in lists
    assert [path.name for path in (tmp_path / "lists").iterdir()] == [place(tmp_path).path.name]


def test_folder_that_cannot_be_written_loses_the_list_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lists").write_text("a file")
    place(tmp_path).write(last())
    assert "last_list_unwritten" in "".join(capsys.readouterr())
    assert place(tmp_path).read() is None


@virtual
async def test_server_with_a_known_list_starts_a_second_later_or_with_the_first_call(tmp_path: Path) -> None:
    def lists(hub: str, known: CachedList | None = None) -> ListFile:
        """In a folder of this hub: time is virtual, so the thread that writes may go on after the hub's end."""
        file = ListFile(tmp_path / hub, "toy", "0" * 32)
        if known is not None:
            file.write(known)
        return file

    async with kept(lists=lists("new")) as far:
        await far.until(UpstreamState.READY)
        assert far.now == 0.5, "nothing is known of it"
        assert (known := far.supervisor.state.lists.last) is not None
    async with kept(lists=lists("restarted", known)) as far:
        await far.until(UpstreamState.READY)
        assert far.now == 0.5, "it was read by this process, as before a restart"
    earlier = replace(known, at=1.5)
    async with kept(lists=lists("known", earlier)) as far:
        assert far.supervisor.snapshot() is not None and far.state is UpstreamState.STARTING
        await far.until(UpstreamState.READY)
        assert far.now == 1.5
    async with kept(lists=lists("called", earlier)) as far:
        await anyio.sleep(0.25)
        far.start_call()
        await far.until(UpstreamState.READY)
        assert far.now == 0.75
