"""docs/limits.md lists every limit that there is, with the default that it has."""

import re
from pathlib import Path

import pytest

from mcp_hub.config.schema.fields import Section
from mcp_hub.config.schema.hub import HttpSettings, LimitSettings

TEXT = (Path(__file__).parents[3] / "docs" / "limits.md").read_text("utf-8")
NO_LIMITS = {
    *("host", "port", "allowed_hosts", "allowed_origins", "cors", "allow_public", "public_url", "root_path"),
    *("close_streams_after", "oauth", "dashboard"),
}
"""Keys of `hub.http` that bound nothing."""
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "s": 1, "min": 60, "d": 86400}


def table(title: str) -> dict[str, float]:
    """The defaults in the table of that section, by key."""
    section = TEXT.partition(f"## `{title}`\n")[2].partition("\n## ")[0]
    found = {}
    for key, number, unit in re.findall(r"^\| `(\w+)` \| (\d+)(?: (\w+))? \|", section, re.MULTILINE):
        found[key] = float(number) * (UNITS[unit] if unit else 1)
    return found


@pytest.mark.parametrize(("title", "settings", "others"), [
    ("hub.limits", LimitSettings(), set()),
    ("hub.http", HttpSettings(), NO_LIMITS),
])  # fmt: skip
def test_every_limit_is_documented_with_its_default(title: str, settings: Section, others: set[str]) -> None:
    fields = type(settings).model_fields.keys()
    assert others <= fields
    assert table(title) == {key: getattr(settings, key) for key in fields - others}
