"""Errors over REST: `application/problem+json` (RFC 9457)."""

from msgspec import UNSET, Raw, Struct, UnsetType

from mcp_hub.types import JsonObject


class ProblemBody(Struct):
    """An error (RFC 9457). `code` is for programs; further members depend on it."""

    title: str
    status: int
    code: str
    detail: str


class FailedCall(Struct, omit_defaults=True, rename={"group": "class"}):
    """Data of an `error` event (`stream_errors.error_data`), whose members go into the problem of a failed call."""

    code: str
    group: str
    retryable: bool
    detail: str
    jsonrpc: Raw
    outcome: str | None = None


class RestProblem(Struct, rename={"group": "class"}):
    """The members that a client looks at; `code` is for programs."""

    code: str
    status: int = 500
    detail: str = ""
    group: str = ""
    earliest: int = 1
    upstream: JsonObject = {}
    stream: str | None = None
    jsonrpc: Raw | UnsetType = UNSET
