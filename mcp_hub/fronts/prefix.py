"""Paths below a prefix: of a mount, or of a reverse proxy."""

import re
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import quote

from mcp_hub.fronts.http.response import Message, Receive, Scope, Send

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An ASGI application."""

_PLACES: Final = b"/v1/"
"""The prefix of each Location that the hub sends."""
_FORWARDED: Final = b"x-forwarded-prefix"
_MCP: Final = "/mcp"
"""The path whose responses name no path."""
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){1,8}")


def is_prefix(text: str) -> bool:
    """Whether the text is one to eight plain segments."""
    return _PREFIX.fullmatch(text) is not None and not {".", ".."} & set(text.split("/"))


def below(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """The request without its `root_path`, which the response's Location gets."""
    root, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    raw = scope.get("raw_path") or quote(path).encode()
    if not root or not f"{path}/".startswith(f"{root}/"):
        return {**scope, "raw_path": raw}, receive, _placing(root, send)
    prefix = quote(root).encode()
    inner_path = path[len(root) :] or "/"
    inner_raw = raw[len(prefix) :] if raw.startswith(prefix) else quote(inner_path).encode()
    return {**scope, "path": inner_path, "raw_path": inner_raw or b"/"}, receive, _placing(root, send)


def _placing(root: str, send: Send) -> Send:
    if not root:
        return send
    prefix = quote(root).encode()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [_placed(prefix, *header) for header in message.get("headers", ())]}
        await send(message)

    return sending


def _placed(prefix: bytes, name: bytes, value: bytes) -> tuple[bytes, bytes]:
    return (name, prefix + value) if name.lower() == b"location" and value.startswith(_PLACES) else (name, value)


def behind_proxy(application: Application, root_path: Callable[[], str]) -> Application:
    """The application behind a reverse proxy that serves it at a sub-path, and may remove it.

    The sub-path is `root_path`, else `X-Forwarded-Prefix`. It changes only paths in the response.
    """

    def serve(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"] != _MCP:
            prefix = root_path()
            for name, value in () if prefix else scope["headers"]:
                if name == _FORWARDED:
                    prefix = _plain(value)
                    break
            if prefix:
                scope, receive, send = below({**scope, "root_path": prefix}, receive, send)
        return application(scope, receive, send)

    return serve


def _plain(forwarded: bytes) -> str:
    prefix = forwarded.decode("latin-1").partition(",")[0].strip().rstrip("/")
    return prefix if is_prefix(prefix) else ""
