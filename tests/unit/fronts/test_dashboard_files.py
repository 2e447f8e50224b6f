"""The static files of the dashboard: small, complete, and nothing in them that reaches elsewhere."""

import re
import tomllib
from pathlib import Path

import pytest

from mcp_hub.fronts.dashboard import shell
from mcp_hub.masking import _CONTROL

FILES = shell.static_files()
OWN = [name for name in FILES if not name.startswith("vendor/")]
FOLDER = Path(shell.__file__).parent / "static"


def test_all_of_them_are_small_together() -> None:
    everything = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in everything) <= 236_000
    assert {path.name for path in everything if path.suffix not in (".js", ".css", ".svg", ".html")} == {
        "LICENSE-htm", "LICENSE-preact"
    }  # fmt: skip


def test_the_wheel_has_them() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    built = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert FOLDER.relative_to(Path(__file__).parents[3]).parts[0] in built["packages"] and "exclude" not in built


DOCUMENTATION = "https://github.com/mcp-hub/mcp-hub/blob/main/docs/README.md"
"""A link that a person may follow; the page takes nothing from there."""


@pytest.mark.parametrize("name", OWN)
def test_each_screen_is_a_small_module_that_takes_nothing_from_elsewhere(name: str) -> None:
    text = FILES[name].decode()
    assert name == "style.css" or len(text.splitlines()) < 200
    links = set(re.findall(r"https?://[^\s'\"`)]+", text)) - {"http://www.w3.org/2000/svg", DOCUMENTATION}
    assert not links and not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text)


_NUMBER = r"\$\{(?:count\((?:[^()]|\([^()]*\))*\)|[\w.?]+)\}"
_COUNTED = re.compile(rf"(?<!of ){_NUMBER} (?:more |open |other )?([a-z]{{3,}}s)\b(?!=)")
_ALLOWED = {"asks", "has", "proposes", "times"}


@pytest.mark.parametrize("name", [name for name in OWN if name.endswith(".js")])
def test_numbers_have_the_noun_of_their_number(name: str) -> None:
    """By `plural`; verbs follow names, and "3 times" is written for more than one alone."""
    assert set(_COUNTED.findall(FILES[name].decode())) <= _ALLOWED


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_every_import_is_a_file_of_its_own(name: str) -> None:
    for target in re.findall(r"""\b(?:from|import)\s*['"]([\w./-]+)['"]""", FILES[name].decode()):
        assert target.startswith("."), target
        path = (FOLDER / name).parent.joinpath(target).resolve()
        assert path.relative_to(FOLDER).as_posix() in FILES


def test_characters_that_nobody_sees_are_the_same_as_on_a_terminal() -> None:
    """But for joiners in words and pictures, which the page spells out, and selectors, which it leaves."""
    [unseen] = re.findall(r"UNSEEN = /(\[.*\])/gu;", FILES["lib/format.js"].decode())
    escapes = re.sub(r"\\u\{?([0-9a-f]+)\}?", lambda match: f"\\U{match[1]:0>8}", unseen)
    left = [char for char in map(chr, range(0x110000)) if _CONTROL.match(char) and not re.match(escapes, char)]
    assert {*left} == {*map(chr, range(0xD800, 0xE000)), *map(chr, range(0xFE00, 0xFE10))}
