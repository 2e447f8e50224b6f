"""The page at `/` and its modules, without data, and access to `/api`: for a page of this origin with a token.

Programs get JSON. Without cookies, which a browser would send to every port of this machine. CORS settings do not
apply.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub.fronts.http.auth import HttpAuth, Refusal, challenged
from mcp_hub.fronts.rest import pages
from mcp_hub.protocol.rest.overview import DashboardMode
from mcp_hub.sessions.session import Caller

_REQUIRED: Final = "The dashboard needs a token, on this machine too. Open it with: mcp-hub open"
PREFIX: Final = "/dashboard/"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
_TYPES: Final = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "html": "text/html; charset=utf-8",
}
Endpoint = Callable[[Request], Awaitable[Response]]


async def caller_of(
    headers: Mapping[bytes, bytes],
    auth: HttpAuth,
    identify: Callable[[], Awaitable[Caller | Refusal]],
    public_url: str | None,
) -> Caller | Refusal:
    """The caller of `/api`; `identify` checks tokens of the hub."""
    if not is_own_page(headers, public_url):
        return Refusal(403, "origin_not_allowed", "only the page of the hub itself may ask here")
    if (operator := auth.operator(headers)) is not None:
        return operator
    has_token = headers.get(b"authorization", b"").lower().startswith(b"bearer ")
    return await identify() if has_token and auth.needs_token else challenged(b"Bearer", "unauthorized", _REQUIRED)


def is_own_page(headers: Mapping[bytes, bytes], public_url: str | None) -> bool:
    """Programs send neither header, browsers do."""
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    url = urlsplit(origin.decode("latin-1").lower())
    hosts = {headers.get(b"host", b"").decode("latin-1").lower()}
    if public_url is not None:
        hosts.add(urlsplit(public_url).netloc.lower())
    return url.scheme in ("http", "https") and url.netloc in hosts


def static_files() -> Mapping[str, bytes]:
    return dict(_below(files(__package__).joinpath("static"), ""))


def _below(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    files_below = []
    for entry in folder.iterdir():
        if entry.is_dir():
            files_below += _below(entry, f"{path}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _TYPES:
            files_below.append((path + entry.name, entry.read_bytes()))
    return files_below


def routes(mode: Callable[[], DashboardMode]) -> Mapping[str, Route]:
    """The page's routes by path."""
    contents = static_files()
    index = page_of(contents["index.html"], "html", mode, pages.index)

    async def root(request: Request) -> Response:
        is_browser = "text/html" in request.headers.get("accept", "")
        response = await (index if is_browser else pages.index)(request)
        response.headers["vary"] = "Accept"
        return response

    by_path = {"/": Route("/", root, methods=["GET"])}
    for name, content in contents.items():
        if name != "index.html":
            path = PREFIX + name
            by_path[path] = Route(path, page_of(content, name.rpartition(".")[2], mode, _nothing), methods=["GET"])
    return by_path


def page_of(content: bytes, kind: str, mode: Callable[[], str], otherwise: Endpoint) -> Endpoint:
    """The endpoint of a file without data; in the mode `off` another one."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'

    async def page(request: Request) -> Response:
        if mode() == "off":
            return await otherwise(request)
        headers = {**_HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers={**headers, "content-type": _TYPES[kind]})

    return page


async def _nothing(request: Request) -> Response:
    return Response(status_code=404)
