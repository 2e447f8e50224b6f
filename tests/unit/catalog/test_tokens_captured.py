"""The estimate on the lists of 33 public servers (data outside the repository), against the real o200k encoding.

Measured once: the tokens of all lists as compact JSON, and of their signatures under exported names. Signatures that
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

TOKENS, CHARACTERS, OF_LINES = 237_145, 88_375, 20_902
"""Tokens of all lists, characters of all signatures, tokens of these."""


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


def test_all_lists_together_are_estimated_within_a_fiftieth() -> None:
    assert LISTS is not None
    servers = sorted(path.stem for path in LISTS.glob("*.json"))
    assert abs(sum(estimate(encoded(tools(server))) for server in servers) - TOKENS) <= TOKENS / 50
    lines = [signatures(server) for server in servers]
    assert sum(map(len, lines)) == CHARACTERS, "other signatures than those that were measured"
    assert abs(sum(map(estimate, lines)) - OF_LINES) <= OF_LINES / 50 and OF_LINES < 23_000
