"""The table of formats, and MCP's own, which no model streams.

Connectors are request entries by which a provider connects to an MCP server.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote, urlsplit

from mcp_hub.errors import Rejected
from mcp_hub.formats.anthropic import ANTHROPIC
from mcp_hub.formats.arguments import checked
from mcp_hub.formats.gemini import GEMINI
from mcp_hub.formats.interactions import INTERACTIONS
from mcp_hub.formats.openai import OPENAI
from mcp_hub.formats.provider import (
    Answered,
    CallResults,
    Provider,
    extra_members,
    id_members,
    model_call,
    text_member,
)
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import NO_ID, ModelCall
from mcp_hub.formats.responses import RESPONSES
from mcp_hub.formats.schemas.dialects import Dialect
from mcp_hub.types import CONNECTORS as CONNECTORS
from mcp_hub.types import Connector as Connector
from mcp_hub.types import Format as Format
from mcp_hub.types import JsonObject

TOKEN: Final = "${HUB_TOKEN}"
"""A placeholder; replace it with the token with which the provider connects to the hub."""
_BETA: Final = "mcp-client-2026-09-15"
_LABEL: Final = re.compile(r"[^A-Za-z0-9_-]")
_URL: Final = re.compile(r"[!#-;=?-\[\]_a-z~]{1,2000}")
_NAME: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)+[a-z][a-z0-9-]*[a-z0-9]", re.IGNORECASE)
_PRIVATE: Final = (".local", ".localhost", ".internal", ".lan", ".intranet", ".home.arpa", ".test", ".invalid")
"""Domains that nobody else can reach."""


def endpoint(base: str | None, profile: str | None) -> str:
    """The MCP endpoint for a public address. Raises: Rejected: `public_url_required`."""
    if base is None:
        raise _refused("the hub's public address is not known")
    reason = _why_not_public(base)
    if reason is not None:
        raise _refused(reason)
    url = base.rstrip("/")
    url = url if url.endswith("/mcp") else f"{url}/mcp"
    return url if profile is None else f"{url}/p/{quote(profile, '')}"


def _refused(reason: str) -> Rejected:
    message = f"The provider has to reach the hub, and {reason}. Set hub.http.public_url or give url=https://…"
    return Rejected("public_url_required", message)


def _why_not_public(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").removesuffix("."), parts.port
    except ValueError:
        return "the address is not a URL"
    if parts.scheme != "https" or not host or not _URL.fullmatch(url):
        return "the address is not https://"
    if "@" in parts.netloc or "?" in url or "#" in url:
        return "the address has a user, a query or a fragment"
    return None if _is_public(host) else "the address is not public"


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return _NAME.fullmatch(host) is not None and not host.lower().endswith(_PRIVATE)


def connect(
    kind: Connector,
    url: str,
    listing: Sequence[JsonObject],
    *,
    label: str = "mcp-hub",
    selected: Collection[str] | None = None,
    is_deferred: bool = False,
) -> JsonObject:
    """The request members that connect the provider to `url`, whose tools are `listing`.

    Tools that are not `selected` (None: all) are off. `is_deferred`: the provider's search finds them.
    """
    label = _LABEL.sub("-", label)
    names = [tool["name"] for tool in listing if selected is None or tool["name"] in selected]
    if kind == "openai-mcp":
        entry: JsonObject = {"type": "mcp", "server_label": label, "server_url": url, "authorization": TOKEN}
        entry |= {"allowed_tools": {"tool_names": names}, "require_approval": "always"}
        return _with_search(entry, is_deferred)
    if kind == "gemini-mcp":
        entry = {"type": "mcp_server", "name": label.replace("-", "_"), "url": url}
        entry |= {"headers": {"Authorization": f"Bearer {TOKEN}"}, "allowed_tools": [{"tools": names}]}
        return _with_search(entry, is_deferred)
    default = {**({} if selected is None else {"enabled": False}), **({"defer_loading": True} if is_deferred else {})}
    toolset: JsonObject = {
        "type": "mcp_toolset",
        "mcp_server_name": label,
        "tools": [_pinned(tool) for tool in listing],
    }
    toolset |= {"default_config": default} if default else {}
    toolset |= {} if selected is None else {"configs": {name: {"enabled": True} for name in names}}
    search = [{"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}] if is_deferred else []
    return {
        "mcp_servers": [{"type": "url", "name": label, "url": url, "authorization_token": TOKEN}],
        "tools": [*search, toolset],
        "betas": [_BETA],
    }


def _with_search(entry: JsonObject, is_deferred: bool) -> JsonObject:
    return {"tools": [{"type": "tool_search"}, {**entry, "defer_loading": True}] if is_deferred else [entry]}


def _pinned(tool: JsonObject) -> JsonObject:
    description = {"description": tool["description"]} if "description" in tool else {}
    return {"name": tool["name"], **description, "input_schema": tool["inputSchema"]}


def _read_call(item: JsonObject, at: int) -> ModelCall:
    has_id = isinstance(item.get("id"), str)
    extra = {**extra_members(item, "id", "name", "arguments"), **({} if has_id else {NO_ID: True})}
    name = text_member(item, "name", "mcp")
    return model_call(item["id"] if has_id else f"call_{at}", name, checked(item.get("arguments", {})), extra)


def _write_call(call: ModelCall, arguments: JsonObject, extra: JsonObject) -> JsonObject:
    return {**id_members(call), "name": call.name, "arguments": arguments, **extra}


def _write_results(answered: Answered) -> list[JsonObject]:
    return [{**id_members(call), "result": result} for call, result in answered]


def _read_results(messages: Sequence[JsonObject]) -> CallResults:
    return [(message.get("id", ""), message["result"]) for message in messages]


_MCP: Final = Provider(
    names=re.compile(r".+", re.DOTALL),
    plain=Dialect(None),
    write_tool=lambda definition, schema, is_strict: definition,
    read_tools=list,
    inside=("calls",),
    is_call=lambda item: "name" in item,
    read_call=_read_call,
    write_call=_write_call,
    write_results=_write_results,
    read_results=_read_results,
    reader=None,
)

FORMATS: Final[Mapping[Format, Provider]] = {
    Format.MCP: _MCP,
    Format.ANTHROPIC: ANTHROPIC,
    Format.OPENAI: OPENAI,
    Format.OPENAI_RESPONSES: RESPONSES,
    Format.GEMINI: GEMINI,
    Format.GEMINI_INTERACTIONS: INTERACTIONS,
}
"""Every format; the rest of the hub asks here what a format has."""
PROVIDERS: Final[Mapping[Format, Provider]] = {name: entry for name, entry in FORMATS.items() if entry is not _MCP}
"""The formats of model providers."""


def format_named(name: str) -> Format:
    """Raises: Rejected (`unknown_format`)."""
    try:
        return Format(name)
    except ValueError:
        names = ", ".join(Format)
        raise Rejected("unknown_format", f'unknown format "{name}". Use one of: {names}.') from None


def output_reader(out_of: Format) -> OutputReader:
    """A reader for one output. Raises: Rejected (`unknown_format`), also for MCP."""
    reader = FORMATS[out_of].reader
    if reader is None:
        raise Rejected("unknown_format", f'the format "{out_of}" has no streams. Use that of a provider.')
    return reader()
