"""The `_meta` members that give a tool an app (MCP Apps, 2026-01-26, "Resource Discovery")."""

from typing import Final

import msgspec

from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.types import RawObject

_UI: Final = "ui"
_ADDRESS: Final = "resourceUri"
_OLD_ADDRESS: Final = "ui/resourceUri"
"""The member of `_meta` that older servers send."""
SCHEME: Final = "ui://"
"""Scheme of every app's address."""
_LONGEST: Final = 1024
"""The most characters of an address; a longer one is not rewritten."""


class AppMeta(msgspec.Struct, frozen=True):
    """A tool's app: the server's own `address`, and who may call the tool."""

    address: str | None = None
    for_model: bool = True
    for_app: bool = True


def app_meta(meta: RawObject | None) -> AppMeta | None:
    """Members of wrong types are ignored; without `visibility` a tool is for the model and for apps."""
    if not meta or (_UI not in meta and _OLD_ADDRESS not in meta):
        return None
    ui = raw_object(meta.get(_UI, msgspec.UNSET)) or {}
    visibility = read_as(ui["visibility"], list[object]) if "visibility" in ui else None
    addresses = [_address(raw) for raw in (ui.get(_ADDRESS), meta.get(_OLD_ADDRESS)) if raw is not None]
    return AppMeta(
        next((address for address in addresses if address is not None), None),
        visibility is None or "model" in visibility,
        visibility is None or "app" in visibility,
    )


def _address(raw: msgspec.Raw) -> str | None:
    text = read_as(raw, str)
    return text if text is not None and text.startswith(SCHEME) and len(text) <= _LONGEST else None


def app_members(meta: RawObject) -> RawObject:
    return {name: meta[name] for name in (_UI, _OLD_ADDRESS) if name in meta}


def with_address(definition: bytes, address: str, exported: str) -> bytes:
    """A definition with the exported address of its app."""
    if exported == address:
        return definition
    fields = raw_object(msgspec.Raw(definition)) or {}
    meta = _readdressed(raw_object(fields["_meta"]) or {}, _OLD_ADDRESS, address, exported)
    if _UI in meta and (ui := raw_object(meta[_UI])):
        meta[_UI] = msgspec.Raw(object_bytes(_readdressed(ui, _ADDRESS, address, exported)))
    return object_bytes({**fields, "_meta": meta})


def _readdressed(members: RawObject, name: str, address: str, exported: str) -> RawObject:
    if name not in members or read_as(members[name], str) != address:
        return members
    return {**members, name: msgspec.Raw(object_bytes(exported))}


def without_app(definition: bytes) -> bytes:
    """A definition without its app."""
    fields = raw_object(msgspec.Raw(definition)) or {}
    meta = raw_object(fields.pop("_meta", msgspec.UNSET)) or {}
    remaining = {name: value for name, value in meta.items() if name not in (_UI, _OLD_ADDRESS)}
    return object_bytes({**fields, "_meta": remaining} if remaining else fields)
