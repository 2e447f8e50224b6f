"""Constraints as text: what a provider's subset cannot say goes into the description."""

from typing import Final

from mcp_hub.formats.schemas.nodes import Node, text_of

MOST: Final = 400
"""Characters of one constraint that are shown."""


def noted(node: Node, constraints: Node) -> Node:
    """The node with the constraints at the end of its description."""
    if not constraints:
        return node
    text = "; ".join([_sentence(keyword, value) for keyword, value in constraints.items()])
    before = node.get("description", "").rstrip()
    return {**node, "description": f"{before} ({text})" if before else f"({text})"}


def _sentence(keyword: str, value: object) -> str:
    text = value if isinstance(value, str) else text_of(value)
    return f"{keyword}: {text if len(text) <= MOST else text[:MOST] + '…'}"
