"""Order of builds, and versions of the protocol between shim and hub."""

from mcp_hub import __version__

OLDEST, NEWEST = 1, 1
"""The versions of the attach protocol that this build speaks; another major version is another scope."""
MAJOR = 1
BUILD = __version__


def order(build: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key: numbers by value, a pre-release before its release."""
    parts: list[tuple[int, int, str]] = []
    for part in build.replace("-", ".").replace("+", ".").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        suffix = part[len(digits) :]
        parts.append((1, int(digits), "") if digits else (0, 0, suffix))
        if digits and suffix:
            parts.append((0, 0, suffix))
    return (*parts, (0, 1, ""))


def is_newer(build: str, than: str) -> bool:
    return order(build) > order(than)
