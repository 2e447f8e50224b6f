"""Errors over REST: `application/problem+json` (RFC 9457)."""

from msgspec import UNSET, Raw, Struct, UnsetType

from mcp_hub.types import JsonObject


class ProblemBody(Struct):
    """An error (RFC 9457). `code` is for programs and decides on further members."""

    title: str
    status: int
    code: str
    detail: str


class FailedCall(Struct, omit_defaults=True, rename={"group": "class"}):
    """Data of an `error` event, part of a failed call's problem."""

    code: str
    group: str
    retryable: bool
    detail: str
    jsonrpc: Raw
    outcome: str | None = None


class RestProblem(Struct, rename={"group": "class"}):
    """Members of a problem that clients read."""

    code: str
    status: int = 500
    detail: str = ""
    group: str = ""
    earliest: int = 1
    upstream: JsonObject = {}
    stream: str | None = None
    jsonrpc: Raw | UnsetType = UNSET
