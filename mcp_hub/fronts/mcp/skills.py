"""`skills/get`: the entry of one skill (SEP-2640), from the list if it is there, else from its server."""

import msgspec

from mcp_hub.errors import InvalidParams
from mcp_hub.hub import CallHandle, HubPort
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Session
from mcp_hub.types import Kind, RawObject


def skill_result(hub: HubPort, session: Session, params: RawObject, meta: RequestMeta) -> bytes | CallHandle:
    """The result, or the call that gets it: a server need not list every skill that it has. Raises `RpcError`."""
    try:
        uri = msgspec.json.decode(params.get("uri", b""), type=str)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams("skills/get: params.uri must be a string") from None
    view = hub.view(session)
    entry = view.find(Kind.SKILL, uri)
    if entry is None:
        return hub.call(session, "skills/get", params, meta)
    hint = view.hint(Kind.SKILL)
    caching = {"ttlMs": hint.ttl_ms, "cacheScope": "public" if hint.public else "private"}
    return object_bytes({"resultType": "complete", "skill": msgspec.Raw(entry.raw), **caching})
