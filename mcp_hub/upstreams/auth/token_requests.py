"""The requests of one login, one after the other, and what came of them: between the OAuth client and the network.

That client puts what it cannot read into its errors as it came, so it is given nothing that it could not read.
"""

import httpx2
import msgspec

from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.answers import BUSY, issued, refusal
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.wire.responses import JSON, origin

_WAY, _METADATA, _CLIENT, _TOKEN = "a way to log in", "metadata", "a client", "a token"


class TokenRequests:
    """Sends by `addresses`; the way begins at `server`.

    The form of a request shows its purpose: a form asks for a token, JSON for a client.
    """

    def __init__(self, server: str, addresses: Addresses) -> None:
        self._addresses = addresses
        self._wanted = _WAY
        self._where = origin(server)
        self._is_redirected = False
        self._lack: str | None = None
        self._is_in_doubt = False

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, fit for the OAuth client. Raises `LoginFailed` for one that has no token or client in it."""
        if not self._is_redirected:  # else it is what was asked for before
            self._wanted = _wanted(request)
        self._where = origin(str(request.url))
        response = await self._addresses.send(request)
        self._is_redirected = 300 <= response.status_code < 400
        if self._is_redirected:
            return self._without_content(response)
        if self._wanted == _TOKEN:
            tokens = msgspec.structs.asdict(issued(response, "give a token"))
            return httpx2.Response(200, json={"token_type": "Bearer", **tokens}, request=request)
        if self._wanted == _CLIENT and response.status_code not in (200, 201):
            raise refusal(response, "register the hub as a client")
        self._judge(response)
        return response

    def failed(self, reason: str) -> LoginFailed:
        """The login failed for this reason; not permanently if the answers may be different tomorrow."""
        why = f" ({self._lack})" if self._lack is not None else ""
        return LoginFailed(f"{reason}{why}", is_final=not self._is_in_doubt and self._lack is None)

    def nonsense(self) -> LoginFailed:
        """The last answer cannot be read."""
        return LoginFailed(
            f"{self._where} was asked for {self._wanted} and answered what makes no sense", is_final=False
        )

    def _judge(self, response: httpx2.Response) -> None:
        """Keeps what the last answer lacks, and whether some server was busy: another one may have stood in for it."""
        lack = None if response.status_code in (200, 201) else f"HTTP {response.status_code}"
        if lack is None and self._wanted == _METADATA and not _is_metadata(response.content):
            lack = "what makes no sense"
        self._is_in_doubt |= response.status_code in BUSY
        if lack is None:
            self._lack = None
        elif self._lack is None or response.status_code != 404:  # that one is none of the places where it could be
            self._lack = f"{self._where} was asked for {self._wanted} and answered {lack}"

    def _without_content(self, response: httpx2.Response) -> httpx2.Response:
        """A redirect: what else it says is nobody's business."""
        self._lack = f"{self._where} was asked for {self._wanted} and answered HTTP {response.status_code}"
        bare = httpx2.Response(response.status_code, headers=response.headers, request=response.request)
        bare.next_request = response.next_request
        return bare


def _wanted(request: httpx2.Request) -> str:
    if request.method != "POST":
        return _METADATA
    return _CLIENT if request.headers.get("content-type", "").startswith(JSON) else _TOKEN


def _is_metadata(content: bytes) -> bool:
    """Whether it may be what was asked for: any proxy before a server that is down answers with something."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and ("issuer" in found or "authorization_servers" in found)
