"""Access to `/api`: for a page of this origin with a token.

Without cookies, which a browser would send to every port of this machine. CORS settings do not apply.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.fronts.http.auth import HttpAuth, Refusal, challenged
from mcp_hub.sessions.session import Caller

_REQUIRED: Final = "The dashboard needs a token, on this machine too. Open it with: mcp-hub open"


class DashboardAccess:
    """Checks requests to `/api`."""

    def __init__(self, public_url: Callable[[], str | None] = lambda: None) -> None:
        self._public_url = public_url

    async def caller(
        self, headers: Mapping[bytes, bytes], auth: HttpAuth, identify: Callable[[], Awaitable[Caller | Refusal]]
    ) -> Caller | Refusal:
        """The caller; `identify` checks tokens of the hub."""
        if not self._is_own_page(headers):
            reason = "only the page of the hub itself may ask here"
            return Refusal(403, "origin_not_allowed", reason)
        if (operator := auth.operator(headers)) is not None:
            return operator
        has_token = headers.get(b"authorization", b"").lower().startswith(b"bearer ")
        return await identify() if has_token and auth.needs_token else challenged(b"Bearer", "unauthorized", _REQUIRED)

    def _is_own_page(self, headers: Mapping[bytes, bytes]) -> bool:
        """Programs send neither header, browsers do."""
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            return False
        origin = headers.get(b"origin")
        if origin is None:
            return True
        url = urlsplit(origin.decode("latin-1").lower())
        hosts = {headers.get(b"host", b"").decode("latin-1").lower()}
        if (public := self._public_url()) is not None:
            hosts.add(urlsplit(public).netloc.lower())
        return url.scheme in ("http", "https") and url.netloc in hosts
