"""The state that the successor of an upstream takes over, so that clients notice nothing while it starts."""

import msgspec

from mcp_hub.upstreams.lists.list_cache import CachedList

__all__ = ["Handover"]


class Handover(msgspec.Struct, frozen=True):
    """The lists that stand until there are others, the log level that clients want, and references to resources."""

    lists: CachedList | None
    log_level: str | None
    wanted: tuple[str, ...]
