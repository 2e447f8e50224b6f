"""Tools executed by clients, over REST."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from mcp_hub.protocol.rest.calls import JsonObjectText


class ExecutorBody(Struct, forbid_unknown_fields=True):
    """A worker's tools as MCP defines them; `lease` in seconds, or as `60s`."""

    tools: list[JsonObjectText]
    lease: Annotated[str, Meta(pattern=r"^[0-9]{1,6}s$")] | int | float = 60.0


class ExecutorEpoch(Struct):
    """The registration's number, required in the worker's requests."""

    epoch: int


class OfferPage(Struct):
    """Work, each with `type` (call, cancel, input) and `tool_call_id`. Given out once."""

    offers: list[JsonObjectText]


class PostBody(Struct, forbid_unknown_fields=True):
    """A worker's post about a call: `content` for text deltas, `result` or `error` with `complete`."""

    tool_call_id: str
    events: list[JsonObjectText] = []
    content: str | None = None
    complete: bool = False
    result: JsonObjectText | UnsetType = UNSET
    error: JsonObjectText | UnsetType = UNSET


class PostAnswer(Struct):
    """Events allowed before the next answer; 0: wait."""

    credit: int
