"""Functions for the scripts of tests."""

from mcp_hub import tool


@tool
def lookup(key: str = "a") -> str:
    return f"found {key}"


@tool
def store(text: str) -> str:
    return f"stored {text}"
