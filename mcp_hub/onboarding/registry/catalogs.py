"""AI catalogs, server cards and pages of a registry, as strangers write them: the servers in them. Pure.

Sources: AI Catalog specification 1.0; SEP-2127 and its extension's `schema.json` (v1); API of the MCP registry
(OpenAPI 2025-12-01). A card describes a remote server: packages in it are not read, so no card runs a program.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.addresses import address_of, is_this_machine, origin_parts, refused_place, special_kind
from mcp_hub.config.load.interpolate import Reference, split_text
from mcp_hub.edit import writing
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.masking import hide_head, visible
from mcp_hub.onboarding.registry.dangers import dangers_of
from mcp_hub.onboarding.registry.server_json import ServerDetail, command_of, entry_of, parse_server_json
from mcp_hub.types import JsonObject

CARD: Final = "application/mcp-server-card+json"
"""The type of a card (SEP-2127)."""
CATALOG: Final = "application/ai-catalog+json"
_CARD_SCHEMA: Final = "/server-card.schema.json"
_MOST: Final = 200
"""Servers of a catalog."""
_LONGEST_NAME: Final = 200
"""Characters of an identifier or a name."""
_LONGEST_TEXT: Final = 300
_LONGEST_SHORT: Final = 64
"""Characters of a server's name in the configuration."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
_STAND_IN: Final = "x"
"""In place of a `${…}` where a URL is checked."""


class _Entry(msgspec.Struct, frozen=True):
    """A server in a catalog: the URL of its card, or the card itself."""

    identifier: str
    type: str
    url: str | None = None
    data: JsonObject | None = None


class _Listed(msgspec.Struct, frozen=True):
    """A server in a page of a registry."""

    server: ServerDetail
    meta: dict[str, object] = msgspec.field(name="_meta", default_factory=dict)


class _Paging(msgspec.Struct, frozen=True, rename="camel"):
    next_cursor: str | None = None


class _Page(msgspec.Struct, frozen=True):
    servers: list[object]
    metadata: _Paging = _Paging()


def servers_of_catalog(content: bytes, source: str) -> dict[str, str | JsonObject] | None:
    """The URL of each server's card, or the card, by a name to choose it; None for another document.

    The name is the last part of the identifier, or all of it where others have that name. Raises `ConfigError` for too
    many.
    """
    try:
        document = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not isinstance(entries := document.get("entries"), list):
        return None
    servers: dict[str, str | JsonObject] = {}
    for entry in filter(None, map(_entry, entries)):
        whole = entry.identifier
        names = (whole.rpartition(":")[2] or whole, whole, *(f"{whole} #{number}" for number in range(2, _MOST + 2)))
        servers[next(name for name in names if name not in servers)] = entry.url or entry.data or {}
        if len(servers) > _MOST:
            message = f"lists more than {_MOST} servers. Name the URL of the server's card."
            raise ConfigError(ConfigFinding("config_too_large", message, source))
    return servers


def _entry(item: object) -> _Entry | None:
    try:
        entry = msgspec.convert(item, _Entry)
    except (ValueError, RecursionError):
        return None
    is_card = entry.type.partition(";")[0].strip().lower() == CARD
    is_one = (entry.url is None) is not (entry.data is None)
    return entry if is_card and is_one and 0 < len(entry.identifier) <= _LONGEST_NAME else None


def read_card(content: bytes, source: str, *, is_listed: bool = False) -> ServerDetail:
    """The document; a card, or what a catalog lists (`is_listed`), has remotes alone. Raises `ConfigError`."""
    detail = parse_server_json(content, source)
    is_card = is_listed or (detail.schema or "").endswith(_CARD_SCHEMA)
    return msgspec.structs.replace(detail, packages=[]) if is_card else detail


def registry_page(content: bytes, source: str) -> tuple[list[ServerDetail], str | None]:
    """Servers that can be read and are not deleted, and the cursor of the next page. Raises `ConfigError`."""
    try:
        page = msgspec.json.decode(content, type=_Page)
    except (ValueError, RecursionError):
        message = "did not answer as a registry of MCP servers does. Check hub.registry."
        raise ConfigError(ConfigFinding("invalid_server_json", message, source)) from None
    details = []
    for item in page.servers:
        try:
            listed = msgspec.convert(item, _Listed)
        except (ValueError, RecursionError):
            continue
        official = listed.meta.get(_OFFICIAL)
        status = official.get("status", "") if isinstance(official, dict) else ""
        if status != "deleted" and len(listed.server.name) <= _LONGEST_NAME:
            details.append(msgspec.structs.replace(listed.server, status=status if isinstance(status, str) else ""))
    return details, page.metadata.next_cursor or None


def refused_remote(url: object, source: str) -> str | None:
    """Why the URL of a remote server is not taken from a document, else None. `source`: its URL, or its file.

    A document from elsewhere names https URLs, and no addresses of this machine or of inner networks. A file is the
    person's own.
    """
    scheme, home, _ = origin_parts(source)
    if not isinstance(url, str) or scheme not in ("http", "https"):
        return None
    url = "".join(_STAND_IN if isinstance(part, Reference) else part for part in split_text(url))
    is_near = is_this_machine(home)
    if (problem := refused_place(url, is_near=is_near)) is not None or is_near:
        return problem
    host = urlsplit(url).hostname or ""
    address = address_of(host)
    kind = None if address is None or host == home else special_kind(address)
    return None if kind is None else f"it is {kind}"


def row_of(detail: ServerDetail, source: str) -> JsonObject:
    """The server for a page, as a registry describes it, with `offers_of`; `short` is a name for it."""
    texts = {"name": detail.name, "version": detail.version or "", "description": detail.description or ""}
    return {
        **{key: hide_head(text, _LONGEST_TEXT, "…") for key, text in texts.items()},
        "short": _UNSAFE.sub("-", hide_head(detail.short_name, _LONGEST_SHORT)).lstrip(".-"),
        "deprecated": detail.status == "deprecated",
        **offers_of(detail, source),
    }


def offers_of(detail: ServerDetail, source: str) -> Mapping[str, str]:
    """The entries that a page may propose as YAML: `remote` and `package`; what is refused or dangerous is left out."""
    offers: dict[str, str] = {}
    for kind, is_remote in (("remote", True), ("package", False)):
        try:
            command = command_of(detail, {}, is_remote=is_remote)
            entry = entry_of(detail, {}, is_remote=is_remote)
        except (ConfigError, ValueError):
            continue
        is_refused = is_remote is not (command is None) or refused_remote(entry.get("url"), source) is not None
        if not is_refused and not (command is not None and dangers_of(command, {})):
            text = "\n".join(line for key, value in entry.items() for line in writing.entry(str(key), value, 0, 2))
            offers |= {kind: text} if visible(text) == text else {}
    return offers
