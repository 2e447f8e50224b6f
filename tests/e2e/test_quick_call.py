"""The way of a quick call over stdio is the one that docs/architecture.md shows, and no longer than it may be."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.trace import TraceFailed, traced

ROOT = Path(__file__).parents[2]
MOST_CALLS, MOST_MODULES = 90, 30


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="functions are counted as Python 3.11 calls them")
def test_the_page_shows_the_way_of_a_quick_call() -> None:
    run = subprocess.run([sys.executable, "-m", "bench", "--trace"], cwd=ROOT, capture_output=True, timeout=600)
    lines = [line for line in run.stdout.decode().strip().splitlines() if not line.startswith("20")]
    page = (ROOT / "docs" / "architecture.md").read_text()
    shown = page.partition("<!-- quick call -->")[2].partition("```text\n")[2].partition("\n```")[0]
    assert lines == shown.splitlines()
    words = lines[-1].split()
    assert int(words[0]) <= MOST_CALLS and int(words[5]) <= MOST_MODULES and words[7] == "2"


def test_a_trace_without_a_server_ends_with_the_reason() -> None:
    with pytest.raises(TraceFailed, match="did not start"):
        traced([sys.executable, "-c", "pass"])
