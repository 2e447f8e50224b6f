"""The estimate on the lists of 33 public servers (data outside the repository), against the real o200k encoding.

Measured once: the tokens of every list as compact JSON, and of its signatures under exported names. Signatures that
changed are another text, which the count of their characters shows: they must be measured anew.
"""

import json
import os
from pathlib import Path

import pytest

from mcp_hub.catalog.costs.tokens import estimate
from mcp_hub.catalog.discovery.signatures import signature
from mcp_hub.catalog.names import Wanted, assign

DATA = os.environ.get("MCP_HUB_EVAL_DATA")
LISTS = Path(DATA, "tool-lists") if DATA else None

pytestmark = pytest.mark.skipif(
    LISTS is None or not LISTS.is_dir(), reason="MCP_HUB_EVAL_DATA names no folder with tool-lists/*.json"
)

MEASURED = {
    "amap-maps": (1184, 1134, 485),
    "arxiv-mcp-server": (3989, 2910, 696),
    "atlassian": (27576, 13573, 3221),
    "aws-documentation": (5008, 710, 140),
    "brave-search": (25500, 1540, 382),
    "chrome-devtools": (6549, 4547, 1078),
    "context7": (1052, 322, 63),
    "dataset-viewer": (1359, 1098, 248),
    "duckduckgo": (1066, 367, 88),
    "excel": (17043, 6574, 1614),
    "figma": (951, 333, 79),
    "firecrawl": (17233, 3679, 909),
    "google-workspace": (56296, 20922, 4663),
    "mcp-server-calculator": (79, 90, 17),
    "mcp-server-chart": (14021, 5276, 1255),
    "mcp-server-fetch": (256, 159, 36),
    "mcp-server-git": (1464, 1264, 304),
    "mcp-server-sqlite": (268, 531, 124),
    "mcp-server-time": (552, 200, 41),
    "mcp-server-weibo": (1402, 929, 248),
    "notion": (17500, 2664, 706),
    "playwright": (4413, 2912, 658),
    "sentry": (14379, 3244, 813),
    "server-everything": (1708, 1538, 319),
    "server-filesystem": (2823, 1678, 340),
    "server-github": (3548, 3849, 925),
    "server-gitlab": (1196, 1315, 311),
    "server-memory": (2378, 964, 171),
    "server-puppeteer": (540, 702, 167),
    "server-sequential-thinking": (1003, 198, 42),
    "server-slack": (681, 902, 202),
    "tavily": (1653, 841, 221),
    "variflight": (2475, 1410, 336),
}
"""Server: tokens of its list, characters of its signatures, tokens of these."""


def tools(server: str) -> list[dict[str, object]]:
    assert LISTS is not None
    found: list[dict[str, object]] = json.loads((LISTS / f"{server}.json").read_bytes())["tools"]
    return found


def encoded(of: object) -> str:
    return json.dumps(of, ensure_ascii=False, separators=(",", ":"))


def signatures(server: str) -> str:
    wanted = [Wanted(server, str(tool["name"]), prefix=server) for tool in tools(server)]
    names = assign(wanted)
    return "\n".join(signature(names[server, str(tool["name"])], encoded(tool).encode()) for tool in tools(server))


@pytest.mark.parametrize("server", MEASURED)
def test_a_list_is_estimated_within_a_tenth(server: str) -> None:
    measured, characters, of_lines = MEASURED[server]
    assert abs(estimate(encoded(tools(server))) - measured) <= measured / 10
    lines = signatures(server)
    assert len(lines) == characters, "other signatures than those that were measured"
    assert abs(estimate(lines) - of_lines) <= of_lines / 10


def test_all_lists_together_are_estimated_within_a_fiftieth() -> None:
    whole = sum(measured for measured, _, _ in MEASURED.values())
    assert abs(sum(estimate(encoded(tools(server))) for server in MEASURED) - whole) <= whole / 50
    lines = sum(of_lines for _, _, of_lines in MEASURED.values())
    assert abs(sum(estimate(signatures(server)) for server in MEASURED) - lines) <= lines / 50
    assert lines < 23_000
