"""Fetches documents of strangers: catalogs, cards, a registry's answers. Bounded in bytes, time and redirects.

The first URL is a person's choice. URLs in documents and redirects to other hosts lead to public addresses only, unless
that first host is this machine. Each host is resolved once, and the connection goes to an address that was checked.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urljoin

import anyio
import httpx2
import msgspec

from mcp_hub.addresses import is_this_machine, origin_parts, refused_place
from mcp_hub.config.load.texts import read_bytes
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.masking import hide_head
from mcp_hub.onboarding.registry.catalogs import CARD, CATALOG, read_card, registry_page, servers_of_catalog
from mcp_hub.onboarding.registry.server_json import ServerDetail
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.wire.responses import kind_of

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
    """The document at a file, a URL or a domain, or a name's in the registry, and where it was in the end. Blocks.

    `choose` gets the servers of a catalog and its URL, and returns the name of one. `registry` returns the registry's
    URL. Raises `ConfigError`, as `choose` may.
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
    """The document at a URL, to which `named`, the URL that a person gave, led. Blocks. Raises `ConfigError`."""
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
