"""The static files of the dashboard: small, complete, and nothing in them that reaches elsewhere."""

import re
import tomllib
from pathlib import Path

import pytest

from mcp_hub.fronts.dashboard import shell

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
