"""The lists of 33 public servers, and what else is measured on data outside the repository (`$MCP_HUB_EVAL_DATA`)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

DATA = Path(os.environ.get("MCP_HUB_EVAL_DATA") or "nowhere")
FILES = sorted((DATA / "tool-lists").glob("*.json"))
needs_lists = pytest.mark.data("tool-lists")
needs_queries = pytest.mark.data("toolsearch")
MISSING = "needs data that is not here: $MCP_HUB_EVAL_DATA, a folder with tool-lists/ and toolsearch/ (CONTRIBUTING.md)"


def captured() -> dict[str, list[dict[str, Any]]]:
    """The tools of each server, in its own order."""
    return {path.stem: json.loads(path.read_bytes())["tools"] for path in FILES}


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
