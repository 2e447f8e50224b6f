"""Frozen records and ids that every layer speaks: no I/O, no behaviour beyond construction.

Payloads (definitions, params, results) are `RawJson`: JSON text as the sender wrote it. They are
spliced, never parsed into models and dumped again (architecture.md, "Raw JSON inside").
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

import msgspec

__all__ = [
    "CacheHint",
    "CallId",
    "Era",
    "JsonObject",
    "Kind",
    "RawJson",
    "RawObject",
    "Snapshot",
    "UpstreamState",
    "UpstreamStatus",
]

JsonObject = dict[str, Any]
RawJson = bytes | msgspec.Raw
"""Encoded JSON text of one value, relayed byte for byte."""
RawObject = dict[str, msgspec.Raw]
"""A JSON object decoded one level deep: member values stay encoded."""

CallId = NewType("CallId", str)
"""`st_` + 26 Crockford base32 characters of 128 random bits; also the stream id (streams.md §1)."""


class Era(StrEnum):
    """The two families of MCP revisions: up to 2025-11-25 (`initialize`) and from 2026-07-28 (stateless)."""

    HANDSHAKE = "handshake"
    MODERN = "modern"


class Kind(StrEnum):
    """What a server can list."""

    TOOL = "tool"
    RESOURCE = "resource"
    TEMPLATE = "template"
    PROMPT = "prompt"


class UpstreamState(StrEnum):
    """Where an upstream is in its life (reliability.md §3)."""

    STARTING = "starting"
    READY = "ready"
    BACKING_OFF = "backing_off"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"
    DISABLED = "disabled"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class CacheHint:
    """How long and how widely a list may be cached (2026-07-28, server/utilities/caching)."""

    ttl_ms: int = 0
    public: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one upstream offered when it was last listed: raw definitions in the upstream's own order.

    `warnings` say what is missing from the lists: pages that were cut off, a kind that could not be listed.
    """

    server: str
    era: Era
    lists: Mapping[Kind, tuple[bytes, ...]]
    hints: Mapping[Kind, CacheHint] = field(default_factory=dict)
    capabilities: JsonObject = field(default_factory=dict)
    instructions: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """What a person wants to know of an upstream at one moment; `reason` says why it is not ready."""

    server: str
    state: UpstreamState
    reason: str | None = None
    era: Era | None = None
    version: str | None = None
    server_info: JsonObject | None = None
    restarts: int = 0
    pid: int | None = None
    stderr: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
