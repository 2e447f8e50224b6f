"""`skills/get` and `resources/directory/read` (SEP-2640): from the lists where they say it, else from the server."""

import msgspec

from mcp_hub.errors import InvalidParams
from mcp_hub.hub import CallHandle, HubPort
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Session
from mcp_hub.types import Kind, RawObject


def skill_result(hub: HubPort, session: Session, params: RawObject, meta: RequestMeta) -> bytes | CallHandle:
    """The result, or the call that gets it: a server need not list every skill that it has. Raises `RpcError`."""
    uri = _uri("skills/get", params)
    view = hub.view(session)
    entry = view.find(Kind.SKILL, uri)
    if entry is None:
        return hub.call(session, "skills/get", params, meta)
    hint = view.hints[Kind.SKILL]
    caching = {"ttlMs": hint.ttl_ms, "cacheScope": "public" if hint.public else "private"}
    return object_bytes({"resultType": "complete", "skill": msgspec.Raw(entry.raw), **caching})


def directory_result(hub: HubPort, session: Session, params: RawObject, meta: RequestMeta) -> bytes | CallHandle:
    """The result, or the call that gets it: not every server with skills reads directories. Raises `RpcError`."""
    view = hub.view(session)
    known = view.resources.directory(_uri("resources/directory/read", params), view.entries(Kind.SKILL))
    return hub.call(session, "resources/directory/read", params, meta) if known is None else known


def _uri(method: str, params: RawObject) -> str:
    try:
        return msgspec.json.decode(params.get("uri", b""), type=str)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams(f"{method}: params.uri must be a string") from None
