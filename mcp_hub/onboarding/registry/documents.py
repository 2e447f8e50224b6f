"""Documents of strangers: AI catalogs, server cards and pages of a registry, and the servers in them. Bounded in bytes,
time and redirects.

The first URL is a person's choice. URLs in documents and redirects to other hosts lead to public addresses only, unless
that first host is this machine. Each host is resolved once, and the connection goes to an address that was checked.

Sources: AI Catalog specification 1.0; SEP-2127 and its extension's `schema.json` (v1); API of the MCP registry
(OpenAPI 2025-12-01). A card describes a remote server: packages in it are not read, so no card runs a program.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urljoin, urlsplit

import anyio
import httpx2
import msgspec

from mcp_hub.addresses import address_of, is_this_machine, origin_parts, refused_place, special_kind
from mcp_hub.config.load.interpolate import Reference, split_text
from mcp_hub.config.load.texts import read_bytes
from mcp_hub.edit import writing
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.masking import hide_head, visible
from mcp_hub.onboarding.registry.dangers import dangers_of
from mcp_hub.onboarding.registry.server_json import ServerDetail, command_of, entry_of, parse_server_json
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.wire.responses import kind_of

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
    """Servers that can be read and are not deleted, and the next page's cursor. Raises `ConfigError`."""
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
    """Why a document's URL of a remote server is not taken, else None. `source`: its URL, or its file.

    Documents from elsewhere name https URLs, and no addresses of this machine or inner networks. A file is the person's
    own.
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


_WELL_KNOWN: Final = "/.well-known/ai-catalog.json"
_SERVERS: Final = "/v0.1/servers"
"""The path of the servers in the API of the MCP registry (OpenAPI 2025-12-01)."""
_ACCEPTED: Final = f"{CARD}, {CATALOG};q=0.9, application/json;q=0.8"
_TEXTS: Final = ("", "text/plain", "application/octet-stream")
"""Types under which hosts of plain files serve JSON."""
_MOST_MOVES: Final = 3
"""Redirects that are followed."""
_SECONDS: Final = 30.0
"""Seconds for a document, with its redirects."""
_MOST_PAGES: Final = 5
"""Pages of a registry that one search reads."""
_SHOWN: Final = 200


def catalog_url(host: str) -> str | None:
    """The URL of the catalog of a domain, with or without a port; None if the text is not a domain."""
    name, _, port = host.rpartition(":") if host.rpartition(":")[2].isdecimal() else (host, "", "")
    if not ("." in name or name == "localhost") or any(char in host for char in "/\\@?#") or not host.isascii():
        return None
    scheme = "http" if is_this_machine(name) else "https"
    return f"{scheme}://{host}{_WELL_KNOWN}"


def document_at(
    source: str, registry: Callable[[], str | None], choose: Callable[[Mapping[str, str | JsonObject], str], str]
) -> tuple[ServerDetail, str]:
    """The document at a file, URL or domain, or of a name in the registry, and its final place. Blocks.

    `choose` gets a catalog's servers and URL, and returns a server's name. `registry` returns the registry's URL.
    Raises `ConfigError`, as `choose` may.
    """
    if re.match(r"https?://", source):
        is_bare = re.fullmatch(r"https?://[^/?#]*/?", source) is not None
        return _at_url(source.rstrip("/") + _WELL_KNOWN if is_bare else source, choose)
    path = Path(source).expanduser()
    if path.suffix == ".json" or os.path.isfile(path):
        return read_card(read_bytes(path, LARGEST_OWN)[0], source), source
    if (url := catalog_url(source)) is not None:
        return _at_url(url, choose)
    if (base := registry()) is None:
        message = f"{source!r} is neither a file nor a URL. Name a command: mcp-hub add {source} -- COMMAND… "
        message += "To look up names in a registry, set hub.registry to its URL."
        raise ConfigError(ConfigFinding("no_registry", message))
    return read_card(looked_up(base, source), source), base


def _at_url(url: str, choose: Callable[[Mapping[str, str | JsonObject], str], str]) -> tuple[ServerDetail, str]:
    content = fetched(url)
    servers = servers_of_catalog(content, url)
    if servers is None and url.endswith(_WELL_KNOWN):
        message = "is not an AI catalog. To add the MCP server at a URL: mcp-hub add NAME URL"
        raise ConfigError(ConfigFinding("invalid_server_json", message, _shown(url)))
    if servers is None:
        return read_card(content, url), url
    card = servers[choose(servers, url)]
    if not isinstance(card, str):
        return read_card(msgspec.json.encode(card), url, is_listed=True), url
    try:
        card_url = urljoin(url, card)
    except ValueError:
        raise ConfigError(ConfigFinding("invalid_url", "cannot be used: it is not a URL", _shown(card))) from None
    return read_card(fetched(card_url, url), card_url, is_listed=True), card_url


def fetched(url: str, named: str | None = None) -> bytes:
    """The document at a URL, to which `named`, the URL of a person, led. Blocks. Raises `ConfigError`."""
    return anyio.run(_fetched, url, url if named is None else named)


def looked_up(registry: str, name: str) -> bytes:
    """The newest version of a server in a registry. Blocks. Raises `ConfigError`."""
    return fetched(f"{registry.rstrip('/')}{_SERVERS}/{quote(name, safe='')}/versions/latest")


def search(registry: str, words: str, limit: int) -> Sequence[ServerDetail]:
    """The servers of a registry whose name has these words, at most `limit`. Blocks. Raises `ConfigError`."""
    details: dict[str, ServerDetail] = {}
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        query = {"search": words, "version": "latest", "limit": str(limit), **({"cursor": cursor} if cursor else {})}
        url = f"{registry.rstrip('/')}{_SERVERS}?{urlencode(query)}"
        page, cursor = registry_page(fetched(url, registry), registry)
        for detail in page:
            details.setdefault(detail.name, detail)
        if cursor is None or len(details) >= limit:
            break
    return [*details.values()][:limit]


async def _fetched(url: str, named: str) -> bytes:
    try:
        with anyio.fail_after(_SECONDS):
            for _ in range(_MOST_MOVES + 1):
                response = await _asked(url, named)
                if not response.has_redirect_location:
                    return _content(response, url)
                url = _target(response, url)
    except TimeoutError:
        raise _failed(url, f"does not arrive within {_SECONDS:g} s. Check the URL and the network.") from None
    raise _failed(url, f"is behind more than {_MOST_MOVES} redirects. Name the document itself.")


async def _asked(url: str, named: str) -> httpx2.Response:
    is_near = is_this_machine(origin_parts(named)[1])
    if (problem := refused_place(url, is_near=is_near)) is not None:
        raise ConfigError(ConfigFinding("invalid_url", f"cannot be used: {problem}", _shown(url)))
    is_elsewhere = not is_near and origin_parts(url)[1] != origin_parts(named)[1]
    addresses = Addresses(url, is_public=True) if is_elsewhere else Addresses(named)
    try:
        request = httpx2.Request("GET", url, headers={"accept": _ACCEPTED})
        return await addresses.send(request, "document")
    except httpx2.InvalidURL:
        raise ConfigError(ConfigFinding("invalid_url", "cannot be used: it is not a URL", _shown(url))) from None
    except LoginFailed as problem:
        raise _failed(url, f"cannot be fetched: {problem}. Check the URL and the network.") from None


def _target(response: httpx2.Response, url: str) -> str:
    try:
        return str(httpx2.URL(url).join(response.headers.get("location", "")))
    except httpx2.InvalidURL:
        raise _failed(url, "redirects to what is not a URL. Name the document itself.") from None


def _content(response: httpx2.Response, url: str) -> bytes:
    if response.status_code != 200:
        raise _failed(url, f"answered with {response.status_code}. Check the URL or the name.")
    kind = kind_of(response)
    if kind not in _TEXTS and kind != "application/json" and not kind.endswith("+json"):
        raise _failed(url, f"is {hide_head(kind, _SHOWN)!r}, not JSON. Check the URL.")
    return response.content


def _failed(url: str, message: str) -> ConfigError:
    return ConfigError(ConfigFinding("fetch_failed", message, _shown(url)))


def _shown(url: str) -> str:
    return hide_head(url, _SHOWN, "…")
