"""Files of clients on the disk: links, modes, backups, the way back, and the changes of others."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mcp_hub.onboarding import files
from mcp_hub.onboarding.changes import acts
from mcp_hub.onboarding.changes.acts import Acts, FileChange
from mcp_hub.onboarding.changes.written import ClientRecords, WrittenEntry, client_installs, lost_entries
from mcp_hub.onboarding.clients.table import CLIENTS
from mcp_hub.onboarding.files import BACKUP, FileRefused
from mcp_hub.stores.locks import lock_file, take

SECONDS = 240


def to(text: bytes | None) -> Callable[[bytes | None], bytes | None]:
    return lambda _: text


def added(more: bytes, text: bytes | None) -> bytes:
    return (text or b"") + more


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_bytes(b"before")
    return path


@pytest.fixture
def done(tmp_path: Path) -> Acts:
    return Acts(tmp_path / "state")


def modes(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}


def test_file_is_replaced_with_its_mode_and_restored(file: Path, done: Acts) -> None:
    file.chmod(0o640)
    assert list(done.do("test", [FileChange(file, to(b"after"))])) == [file]
    backup = file.with_name(file.name + BACKUP)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"after", 0o640)
    assert (backup.read_bytes(), backup.stat().st_mode & 0o777) == (b"before", 0o600)
    assert modes(file.parent / "state") == {0o600}
    act = done.undo()
    assert act is not None and act.title == "test"
    assert (file.read_bytes(), file.stat().st_mode & 0o777, backup.exists()) == (b"before", 0o640, False)
    assert done.undo() is None


def test_new_file_is_private_and_a_removed_one_comes_back(tmp_path: Path, done: Acts, file: Path) -> None:
    path = tmp_path / "a" / "b.json"
    done.do("test", [FileChange(path, to(b"new"))])
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert [one.name for one in path.parent.iterdir()] == ["b.json"]
    done.undo()
    assert not path.exists()
    done.do("test", [FileChange(file, to(None))])
    assert not file.exists()
    done.undo()
    assert file.read_bytes() == b"before"


def test_links_are_followed_and_stay(file: Path, done: Acts) -> None:
    link = file.with_name("link.json")
    link.symlink_to("mcp.json")
    done.do("test", [FileChange(link, to(b"after"))])
    assert link.is_symlink() and os.readlink(link) == "mcp.json" and file.read_bytes() == b"after"
    done.undo()
    assert link.is_symlink() and file.read_bytes() == b"before"
    links = [file.with_name(name) for name in ("one.json", "two.json")]
    for link in links:
        link.symlink_to(file)
    done.do("test", [FileChange(link, partial(added, link.name.encode())) for link in links])
    assert file.read_bytes() == b"beforeone.jsontwo.json"
    done.undo()
    assert file.read_bytes() == b"before"


def test_link_that_a_person_put_in_place_of_the_file_stays(file: Path, done: Acts) -> None:
    done.do("test", [FileChange(file, to(b"after"))])
    moved = file.with_name("moved.json")
    file.rename(moved)
    file.symlink_to(moved)
    undone = done.undo()
    assert undone is not None and undone.files[0][0] == file
    assert file.is_symlink() and moved.read_bytes() == b"before"


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(FileRefused) as caught:
        call()
    return caught.value.code


def test_link_to_nothing_and_what_is_not_a_file_are_refused(tmp_path: Path, done: Acts) -> None:
    link, folder = tmp_path / "link", tmp_path / "folder"
    link.symlink_to(tmp_path / "nothing")
    folder.mkdir()
    assert refused(lambda: done.do("test", [FileChange(link, to(b"x"))])) == "dangling_link"
    assert refused(lambda: done.do("test", [FileChange(folder, to(b"x"))])) == "client_file_unreadable"
    assert link.is_symlink() and not (tmp_path / "nothing").exists()


def test_read_only_file_is_refused_and_the_others_are_changed(file: Path, done: Acts) -> None:
    file.chmod(0o444)
    other = file.with_name("other.json")
    outcomes = done.do("test", [FileChange(file, to(b"x")), FileChange(other, to(b"y"))])
    codes = [problem and problem.code for problem in outcomes.values()]
    assert codes == ["client_file_unwritable", None]
    assert (file.read_bytes(), other.read_bytes()) == (b"before", b"y")
    done.undo()
    assert not other.exists() and file.read_bytes() == b"before"


def test_nothing_else_is_changed_when_a_first_file_is_refused(file: Path, done: Acts) -> None:
    locked, other = file.with_name("locked"), file.with_name("other")
    locked.write_bytes(b"mine")
    locked.chmod(0o444)
    changes = [FileChange(other, to(b"x"))]
    code = refused(lambda: done.do("test", changes, [FileChange(file, to(b"after")), FileChange(locked, to(b"x"))]))
    assert (code, file.read_bytes(), other.exists()) == ("client_file_unwritable", b"after", False)
    act = done.undo()
    assert act is not None and len(act.files) == 1 and file.read_bytes() == b"before"


def test_file_that_was_changed_since_keeps_no_other_from_being_restored(file: Path, done: Acts) -> None:
    other = file.with_name("other")
    done.do("test", [FileChange(file, to(b"after")), FileChange(other, to(b"x"))])
    file.write_bytes(b"edited")
    act = done.undo()
    assert act is not None and [bool(result.problems) for _, result in act.files] == [False, True]
    assert (file.read_bytes(), other.exists()) == (b"edited", False)
    saved = act.files[1][1].saved
    assert saved is not None and (saved.read_bytes(), saved.stat().st_mode & 0o777) == (b"before", 0o600)
    assert str(file) in act.files[1][1].problems[0] and done.undo() is None


def test_acts_are_undone_one_by_one_and_only_so_many_are_kept(
    file: Path, done: Acts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "_MOST", 2)
    for text in (b"1", b"2", b"3"):
        done.do("test", [FileChange(file, to(text))])
    assert done.do("nothing", [FileChange(file, to(b"3"))]) == {}
    found = []
    while done.undo():
        found.append(file.read_bytes())
    assert found == [b"2", b"1"]


def test_change_of_another_program_is_kept(file: Path, done: Acts) -> None:
    once = [b"of others"]

    def edit(text: bytes | None) -> bytes:
        if text == b"before" and once and (file.parent / "state/clients/acts").exists():
            file.write_bytes(once.pop())
        return (text or b"") + b"+hub"

    done.do("test", [FileChange(file, edit)])
    assert file.read_bytes() == b"of others+hub"
    done.undo()
    assert file.read_bytes() == b"of others"


def test_file_that_keeps_changing_is_refused(file: Path, done: Acts) -> None:
    def edit(text: bytes | None) -> bytes:
        file.write_bytes((text or b"") + b".")
        return b"hub"

    (problem,) = done.do("test", [FileChange(file, edit)]).values()
    assert problem is not None and problem.code == "client_file_changed"
    assert b"hub" not in file.read_bytes() and done.undo() is None


def test_only_one_process_changes_files_at_a_time(
    file: Path, done: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.02)
    done.do("test", [FileChange(file, to(b"1"))])
    for path in (tmp_path / "state/clients/locks").iterdir():
        lock = lock_file(path)
        assert take(lock, shared=False)
    assert refused(lambda: done.do("test", [FileChange(file, to(b"2"))])) == "client_file_changed"
    assert file.read_bytes() == b"1"


def test_other_program_writes_and_is_undone(file: Path, done: Acts) -> None:
    def run() -> bool:
        file.write_bytes(b"by the client")
        return True

    done.do("test", [FileChange(file, to(b"by the editor"), run)])
    assert file.read_bytes() == b"by the client"
    done.undo()
    assert file.read_bytes() == b"before"


def test_editor_writes_when_the_other_program_could_not(file: Path, done: Acts) -> None:
    def run() -> bool:
        file.write_bytes(b"half done")
        return False

    done.do("test", [FileChange(file, lambda text: (text or b"") + b"+hub", run)])
    assert file.read_bytes() == b"half done+hub"
    done.undo()
    assert file.read_bytes() == b"before"


def test_lost_entries_are_those_that_clients_dropped(tmp_path: Path) -> None:
    state = tmp_path / "state"
    written = ClientRecords(state)
    names = ("cursor", "codex", "goose", "warp", "nothing")
    paths = [tmp_path / name for name in ("mcp.json", "config.toml", "config.yaml", "gone/mcp.json", "x")]
    entries = [WrittenEntry(name, str(path), ("--http",)) for name, path in zip(names, paths, strict=True)]
    for entry in entries:
        written.add_entry(entry)
        written.add_entry(entry)
    paths[0].write_text('{"mcpServers": {"mcp-hub": {}}}')
    paths[1].write_text("[mcp_servers.other]\n")
    paths[2].write_text("extensions: {broken\n")
    assert lost_entries(state) == [entries[1]]
    paths[0].unlink()
    assert lost_entries(state) == entries[:2]
    written.remove_entry(paths[0])
    assert lost_entries(state) == entries[1:2]


def test_the_state_of_each_client_on_this_machine_is_found(tmp_path: Path) -> None:
    contents = {
        ".cursor/mcp.json": '{"mcpServers": {"mcp-hub": {"url": "http://127.0.0.1:1/mcp"}}}',
        ".codex/config.toml": "[mcp_servers.other]\n",
        ".gemini/settings.json": "{broken",
        ".claude.json": "{}",
        ".qwen/settings.json": "{}",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    lost = WrittenEntry("claude-code", str(tmp_path / ".claude.json"), ("--config", "a b"))
    ClientRecords(tmp_path / "state").add_entry(lost)
    env = {"HOME": str(tmp_path), "MCP_HUB_STATE_DIR": str(tmp_path / "state")}
    found = {one.client: one for one in client_installs(env)}
    assert len(found) == len(CLIENTS)
    states = {name: one.state for name, one in found.items() if one.state != "absent"}
    assert states == {
        "cursor": "installed", "codex": "missing", "gemini": "unreadable", "claude-code": "lost", "qwen": "missing",
    }  # fmt: skip
    assert found["claude-code"].command == "mcp-hub install claude-code --config 'a b'"
    assert found["cursor"].command == "mcp-hub install cursor --http"
    assert found["claude-desktop"].command == "mcp-hub install claude-desktop" and found["qwen"].command == ""
    assert found["cursor"].path == str(tmp_path / ".cursor/mcp.json")


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.proof)])
def test_kill_at_any_step_loses_no_byte(tmp_path: Path, stride: int) -> None:
    """SIGKILL at any step of a change or its undo: each file can be brought back."""
    argv = [sys.executable, "-m", "tests.unit.cli.killed_acts", str(tmp_path), str(stride)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    installing, undoing = map(int, done.stdout.split())
    assert installing > 50 and undoing > 20  # it was killed at many steps indeed
