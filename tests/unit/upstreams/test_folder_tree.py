import json
import os
import socket
import sys
from pathlib import Path

import pytest

from mcp_hub.upstreams.folders import _Scan, _TooManyFiles, files_in, read_file, scan
from tests.unit.fronts.skill_folders import write_skill


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    folder = tmp_path / "root"
    (folder / "b/c").mkdir(parents=True)
    for name in ("a", "b/x", "b/c/y"):
        (folder / name).write_text(name)
    return folder.resolve()


def test_only_regular_files_are_found(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".env").write_text("x")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("x")
    (root / "link").symlink_to(root.parent / "outside/secret")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "inside").symlink_to(root / "a")
    if sys.platform != "win32":
        os.mkfifo(root / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            monkeypatch.chdir(root)  # the path of a socket is short
            listener.bind("socket")
    assert list(files_in(root)) == ["a", "b/c/y", "b/x"]


@pytest.mark.parametrize("path", ["link", "folder/secret", "../outside/secret", "b/../a", "b", "none", "null", "pipe"])
def test_what_is_not_a_regular_file_at_its_real_path_is_not_read(root: Path, path: str) -> None:
    (root / "link").symlink_to(root.parent / "outside/secret")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "null").symlink_to("/dev/null")
    if sys.platform != "win32":
        os.mkfifo(root / "pipe")
    with pytest.raises(OSError, match=r"regular file|link|No such file"):
        read_file(root, path, 100)


def test_a_device_is_not_opened(root: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_file(Path("/dev"), "zero", 100)


def test_a_file_is_read_up_to_its_bound(root: Path) -> None:
    assert read_file(root, "b/c/y", 5)[0] == b"b/c/y"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(root, "b/c/y", 4)


def test_a_folder_of_too_many_files_or_levels_is_refused(root: Path) -> None:
    with pytest.raises(_TooManyFiles, match="more than 2 files"):
        files_in(root, 2)
    (root / "/".join("d" * 17)).mkdir(parents=True)
    with pytest.raises(_TooManyFiles, match="16 deep"):
        files_in(root)


def test_skills_that_hosts_would_refuse_are_left_out_with_the_reason(root: Path) -> None:
    write_skill(root, "good", note_md="x")
    write_skill(root, "Bad")
    for name, text in {
        "headless": "no head",
        "nameless": "---\ndescription: d\n---\n",
        "other": "---\nname: another\ndescription: d\n---\n",
        "bomb": "---\nname: bomb\ndescription: &a d\nmore: [*a, *a]\n---\n",
        "broken": "---\nname: [\n---\n",
        "odd": "---\nname: odd\ndescription: d\n~: no key\n---\n",
        "dated": "---\nname: dated\ndescription: !!timestamp never\n---\n",
    }.items():
        (root / name).mkdir()
        (root / name / "SKILL.md").write_text(text)
    (root / "SKILL.md").write_text("x")
    large = root / "large"
    write_skill(root, "large")
    with (large / "data").open("wb") as file:
        file.truncate((16 << 20) + 1)
    found = scan(root, _Scan())
    assert list(found.paths) == ["skill://good/SKILL.md", "skill://good/note.md"]
    said = "\n".join(found.warnings)
    for reason in (
        "skill 'Bad' is left out: the name of its folder",
        "skill 'headless' is left out: its SKILL.md does not begin with YAML",
        "skill 'nameless' is left out: Object missing required field `name`",
        "the name is another",
        "skill 'bomb' is left out: its YAML cannot be read: aliases are not allowed",
        *(f"skill '{name}' is left out: its YAML cannot be read" for name in ("broken", "odd", "dated")),
        "SKILL.md is left out: a skill needs a folder of its own",
        "skill 'large' is left out: it has 16777",
    ):
        assert reason in said
    assert len(found.warnings) == 10


def test_the_head_is_read_as_hosts_read_it(root: Path) -> None:
    folder = root / "typed"
    folder.mkdir()
    head = "name: typed\ndescription: d\nwhen: 2026-01-01\nok: yes\non: true\nn: 010\nempty:\nlist: [1, 2.5, ~]\n"
    (folder / "SKILL.md").write_text(f"---\n{head}---\n")
    (raw,) = scan(root, _Scan()).skills
    assert json.loads(raw)["frontmatter"] == {
        **{"name": "typed", "description": "d", "when": "2026-01-01", "ok": "yes", "on": True, "n": 10},
        **{"empty": None, "list": [1, 2.5, None]},
    }


def test_a_file_that_is_as_it_was_is_not_read_again(root: Path) -> None:
    write_skill(root, "pdf", a_md="x", b_md="y")
    before = scan(root, _Scan())
    (root / "pdf/b.md").write_text("longer")
    after = scan(root, before)
    assert after.files["pdf/a.md"] is before.files["pdf/a.md"]
    assert after.skills != before.skills and after == scan(root, _Scan())
