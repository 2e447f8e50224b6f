"""The code in docs/library.md."""

import ast
import re
from pathlib import Path

import pytest

import mcp_hub

PAGE = (Path(__file__).parents[3] / "docs/library.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_block_compiles_and_imports_public_names_only(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module == "mcp_hub":
            assert {alias.name for alias in node.names} <= set(mcp_hub.__all__)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("hub", "stream"):
            own = mcp_hub.Hub if node.value.id == "hub" else mcp_hub.ToolStream
            assert hasattr(own, node.attr), node.attr


def test_each_error_and_event_that_the_page_names_is_public() -> None:
    assert {name for name in re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE) if name[0].isupper()} <= set(
        mcp_hub.__all__
    )
