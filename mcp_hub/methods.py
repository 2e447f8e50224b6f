"""Methods that MCP and the hub know, and the patterns of other methods in a server's `passthrough`.

A pattern writes its namespace out, the part before the first `/`: it cannot match a method that the hub knows, and
nothing bypasses filters, approvals and rules for calls.
"""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

from mcp_hub.globs import late

KNOWN: Final = frozenset(
    {
        *("initialize", "ping", "server", "tools", "resources", "prompts", "completion", "completions", "logging"),
        *("subscriptions", "sampling", "elicitation", "roots", "tasks", "skills", "events", "ui", "notifications"),
        *("dev.mcp-hub", "io.modelcontextprotocol", "rpc", "$"),
    }
)
"""Namespaces of MCP, its extensions, JSON-RPC and the hub, in lower case: servers may read them in any case."""
_NOTICES: Final = KNOWN | {"initialized", "cancelled", "progress", "message"}
"""Names behind `notifications/` in those of MCP."""
_NOTICE: Final = "notifications/"
_METHOD: Final = late(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_PATTERN: Final = late(r"(?:notifications/)?[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_.-]+)*(?:/[A-Za-z0-9_.-]*\*)?")
_LONGEST: Final = 128
MOST_PATTERNS: Final = 32


def is_foreign(method: str) -> bool:
    """Whether a method is of none of the known namespaces, and written as methods are: at most 128 characters, ASCII
    letters, digits, `_ . -`, and parts between single slashes.
    """
    return len(method) <= _LONGEST and _is_foreign(method)


@lru_cache(maxsize=1024)
def _is_foreign(method: str) -> bool:
    if _METHOD.fullmatch(method) is None:
        return False
    is_notice = method.startswith(_NOTICE)
    namespace, _, _ = method.removeprefix(_NOTICE).partition("/")
    reserved = _NOTICES if is_notice else KNOWN
    return not any(form in reserved for form in (namespace.lower(), namespace.lower().partition(".")[0]))


def may_write(method: str) -> bool:
    """Whether a request may change something at the server, so that it is not repeated: tools, and methods that the hub
    does not know.
    """
    return method == "tools/call" or is_foreign(method)


def pattern_problem(pattern: str) -> str | None:
    """Why `passthrough` may not have this pattern; None if it may."""
    if "*" in pattern.removeprefix(_NOTICE).partition("/")[0]:
        return 'could match a method that the hub knows, such as tools/call. Write the part before the first "/" out.'
    if _PATTERN.fullmatch(pattern) is None or len(pattern) > _LONGEST:
        return "is not a method such as acme/get, or acme/* for all that begin so: ASCII, one * at the end"
    if not is_foreign(pattern.replace("*", "x")):
        return f"is one of {_family(pattern)}, which are the hub's to answer: they have filters, approvals and rules"
    return None


def _family(pattern: str) -> str:
    head = _NOTICE if pattern.startswith(_NOTICE) else ""
    return f"{head}{pattern.removeprefix(_NOTICE).partition('/')[0]}"


def passes(patterns: Collection[str], method: str) -> bool:
    """Whether a method is let through; case counts."""
    return bool(patterns) and is_foreign(method) and _matcher(tuple(patterns))(method)


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    names = frozenset(pattern for pattern in patterns if not pattern.endswith("*"))
    heads = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    return lambda method: method in names or method.startswith(heads)
