"""The page at `/` and its modules, without data, and access to `/api`: for a page of this origin with a token.

Programs get JSON. No cookies: browsers send them to every port of a machine. CORS settings do not apply.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub.errors import StoreError
from mcp_hub.fronts.http.auth import HttpAuth, Refusal, challenged, is_own_page
from mcp_hub.fronts.rest import pages
from mcp_hub.logs import get_logger
from mcp_hub.protocol.rest.overview import DashboardMode
from mcp_hub.sessions.session import Caller

log = get_logger(__name__)

_REQUIRED: Final = "The dashboard needs a token, on this machine too. Open it with: mcp-hub open"
_LOG_IN: Final = "The dashboard needs a login."
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


class _People(Protocol):
    """People who have logged in at an OpenID provider."""

    async def find(self, headers: Mapping[bytes, bytes]) -> tuple[Caller, DashboardMode] | None:
        """The person of a request, and what it may do. Raises `StoreError`."""

    def found(self, headers: Mapping[bytes, bytes]) -> tuple[Caller, DashboardMode] | None:
        """A person who was found a moment ago."""


class PageAccess:
    """Callers of `/api`: by a token, or by a session of `people`."""

    def __init__(self, public_url: Callable[[], str | None], people: Callable[[], _People | None]) -> None:
        self._public_url = public_url
        self._people = people

    async def caller(
        self, headers: Mapping[bytes, bytes], auth: HttpAuth, identify: Callable[[], Awaitable[Caller | Refusal]]
    ) -> Caller | Refusal:
        """The caller; `identify` checks tokens of the hub."""
        if not is_own_page(headers, self._public_url()):
            return Refusal(403, "origin_not_allowed", "only the page of the hub itself may ask here")
        if (operator := auth.operator(headers)) is not None:
            return operator
        if _has_token(headers) and auth.needs_token:
            return await identify()
        if (people := self._people()) is None:
            return challenged(b"Bearer", "unauthorized", _REQUIRED)
        try:
            person = await people.find(headers)
        except StoreError as problem:
            log.warning("dashboard_sessions_unreadable", reason=str(problem))
            return Refusal(503, "store_unavailable", "The hub cannot read its sessions. Try again later.")
        return challenged(b"Bearer", "login_required", _LOG_IN) if person is None else person[0]

    def mode(self, headers: Mapping[bytes, bytes], mode: DashboardMode) -> DashboardMode:
        """The mode for a caller: a person may only read."""
        people = self._people()
        person = None if people is None or mode != "full" or _has_token(headers) else people.found(headers)
        return mode if person is None else person[1]

    async def lasts(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the session lasts; a token does. Raises `StoreError`."""
        if _has_token(headers):
            return True
        people = self._people()
        return people is not None and await people.find(headers) is not None


def _has_token(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"authorization", b"").lower().startswith(b"bearer ")


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
