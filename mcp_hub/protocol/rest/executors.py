"""Tools that clients execute, over REST: registrations, offers and posts."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from mcp_hub.protocol.rest.calls import JsonObjectText


class ExecutorBody(Struct, forbid_unknown_fields=True):
    """The tools that a worker executes, as MCP defines them; `lease` in seconds, or as `60s`."""

    tools: list[JsonObjectText]
    lease: Annotated[str, Meta(pattern=r"^[0-9]{1,6}s$")] | int | float = 60.0


class ExecutorEpoch(Struct):
    """The number of the registration, to be sent with whatever the worker does under it."""

    epoch: int


class OfferPage(Struct):
    """Work for a worker: each has a `type` (call, cancel, input) and a `tool_call_id`. Given out once."""

    offers: list[JsonObjectText]


class PostBody(Struct, forbid_unknown_fields=True):
    """A post of a worker about a call. `content` stands for one text delta; `result`, `error` go with `complete`."""

    tool_call_id: str
    events: list[JsonObjectText] = []
    content: str | None = None
    complete: bool = False
    result: JsonObjectText | UnsetType = UNSET
    error: JsonObjectText | UnsetType = UNSET


class PostAnswer(Struct):
    """At most `credit` more events may be posted before the next answer; 0: wait."""

    credit: int
