"""Pages for people and programs that come without knowing the hub: where things are, and the REST API to read.

They need no token, because a browser does not have one to send. They say nothing about the hub: all have the same.
"""

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_hub.fronts.rest import docs_page, openapi
from mcp_hub.fronts.rest.exchange import answer

_PLACES: Final = {
    "mcp": ("/mcp", "MCP over Streamable HTTP: the URL for clients"),
    "sse": ("/sse", "MCP over HTTP+SSE, for clients of 2024"),
    "rest": ("/v1", "REST API, for programs that do not speak MCP"),
    "docs": ("/v1/docs", "its description to read"),
    "openapi": ("/v1/openapi.json", "its description for programs"),
    "ready": ("/readyz", "whether the hub is ready; with ?verbose its servers"),
    "metrics": ("/metrics", "figures for Prometheus"),
}
_STYLE: Final = b64encode(hashlib.sha256(docs_page.STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "vary": "Accept",
}


def routes() -> Mapping[str, Route]:
    """By path."""
    paths = {"/": index, "/v1": index, "/v1/": index, "/v1/docs": _docs}
    return {path: Route(path, endpoint, methods=["GET"]) for path, endpoint in paths.items()}


async def index(request: Request) -> Response:
    """A page for browsers, else JSON."""
    root = request.scope.get("root_path", "").rstrip("/")
    if "text/html" not in request.headers.get("accept", ""):
        response = answer({"name": "mcp-hub", **{name: root + path for name, (path, _) in _PLACES.items()}})
        response.headers["vary"] = "Accept"
        return response
    links = [(f'<a href="{escape(root + path)}">{path}</a>', escape(said)) for path, said in _PLACES.values()]
    said = "<p>One MCP server in front of many. Clients connect to <code>/mcp</code>.</p>"
    return HTMLResponse(
        docs_page.page("mcp-hub", f"<h1>mcp-hub</h1>{said}{docs_page.table(('path', ''), links)}"), headers=_HEADERS
    )


async def _docs(request: Request) -> Response:
    document = msgspec.json.decode(openapi.document(""))
    return HTMLResponse(docs_page.docs(document, request.scope.get("root_path", "").rstrip("/")), headers=_HEADERS)
