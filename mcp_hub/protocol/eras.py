"""Features of protocol versions.

Source: specification 2024-11-05 to 2026-07-28, basic/versioning. Constants repeat `mcp_types.version`, whose import is
slow.
"""

from typing import Final

from mcp_hub.types import Era, JsonObject

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS: Final = ("2026-07-28",)
LATEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
LATEST_MODERN: Final = MODERN_VERSIONS[-1]
LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""RFC 5424 severities, least severe first (server/utilities/logging)."""
_ALIKE: Final = {
    "debug": ("trace", "verbose", "fine", "silly", "all", "dbg"),
    "notice": ("success", "note"),
    "warning": ("warn", "wrn"),
    "error": ("err", "severe", "fail", "exception"),
    "critical": ("crit", "fatal", "crash"),
    "emergency": ("emerg", "panic"),
}
"""Beginnings of level names in logging libraries; any other name is `info`."""
_OPENINGS: Final = {opening: level for level in LOG_LEVELS for opening in (level, *_ALIKE.get(level, ()))}
_STEPS: Final = ((50, "critical"), (40, "error"), (30, "warning"), (20, "info"))
"""Minimums of the levels of Python's `logging`; a number below 8 is a severity of RFC 5424."""

CALL_METHODS: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})
"""Requests that become a call to exactly one upstream."""

SKILL_METHODS: Final = frozenset({"skills/list", "skills/get", "resources/directory/read"})
"""Methods of the skills extension (SEP-2640)."""

SUBSCRIPTION_METHODS: Final = frozenset({"resources/subscribe", "resources/unsubscribe", "subscriptions/listen"})

_SHARED = CALL_METHODS | {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "events/list"}
METHODS: Final = {
    Era.HANDSHAKE: _SHARED | {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"},
    Era.MODERN: _SHARED | SKILL_METHODS | {"server/discover", "subscriptions/listen"},
}
"""The requests that the hub answers in each era, but for those of its extensions."""


def era_of(version: str) -> Era:
    """An unknown version counts as modern."""
    return Era.HANDSHAKE if version in HANDSHAKE_VERSIONS else Era.MODERN


def serves(era: Era, method: str) -> bool:
    return method in METHODS[era]


def negotiate(requested: object) -> str:
    """The version for `initialize`: the requested or the latest handshake version."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE_VERSIONS else LATEST_HANDSHAKE


def is_at_least(version: str, minimum: str) -> bool:
    """False for an unknown version."""
    versions = HANDSHAKE_VERSIONS + MODERN_VERSIONS
    return version in versions and versions.index(version) >= versions.index(minimum)


def unsupported_version(requested: str) -> JsonObject:
    """The `data` of error -32022."""
    return {"supported": list(MODERN_VERSIONS), "requested": requested}


def log_level(level: object) -> str:
    """The MCP level nearest to a server's word or number."""
    if isinstance(level, (int, float)):
        if 0 <= level < len(LOG_LEVELS):
            return LOG_LEVELS[-1 - int(level)]
        return next((name for least, name in _STEPS if level >= least), "debug")
    word = level.strip().lower() if isinstance(level, str) else ""
    if word.isdecimal() and len(word) < 4:
        return log_level(int(word))
    return next((name for opening, name in _OPENINGS.items() if word.startswith(opening)), "info")


def level_admits(threshold: str, level: str) -> bool:
    """Whether a message passes; an unknown level does."""
    return level not in LOG_LEVELS or LOG_LEVELS.index(level) >= LOG_LEVELS.index(threshold)
