"""Each promise of the threat model names tests that exist."""

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`(test_\w+)`")
_DEFINED = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def test_rows_of_promises_name_tests_that_exist() -> None:
    text = (_ROOT / "docs/threat-model.md").read_text("utf-8")
    named = set(_NAMED.findall(text))
    tests = (_ROOT / "tests").rglob("test_*.py")
    assert len(named) > 50
    assert named - {name for path in tests for name in _DEFINED.findall(path.read_text("utf-8"))} == set()
    sections = [part for part in text.split("\n## ") if "| shown by |" in part]
    rows = [line for part in sections for line in part.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.endswith("| shown by |") and not row.startswith("| ---")]
    assert len(promises) > 30
    assert [row for row in promises if not _NAMED.search(row)] == []
