"""Responses without a message, and failed connections."""

import math
import os
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import urlsplit

import httpx2

from mcp_hub.clock import wall_time
from mcp_hub.errors import HttpRefused, RpcError, UpstreamLost
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol.jsonrpc import rpc_errors
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Unset
from mcp_hub.types import JsonObject, RawJson

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
POSTED: Final = {"accept": f"{JSON}, {EVENT_STREAM}", "content-type": JSON}
"""Headers of a message that is sent."""
NO_CONNECTION: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError)
"""Nothing was sent."""
DENIED: Final = (401, 403)
"""Statuses that are about who asks."""
OVERLOADED: Final = (429, 503)
"""Statuses by which a server asks for fewer requests, or for patience."""
WRONG_NAME: Final = (62, 64)
"""X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""
_CERTIFICATES: Final = {
    **dict.fromkeys(WRONG_NAME, "tls_wrong_host"),
    **dict.fromkeys((2, 18, 19, 20, 21), "tls_unknown_issuer"),
    **dict.fromkeys((9, 10), "tls_expired"),
}
"""Codes of what is wrong with a certificate, by OpenSSL's `X509_V_ERR_…`."""
_DIGITS: Final = 9
_LONGEST: Final = 86400
"""Seconds of `Retry-After` that are believed."""
_LOCATION: Final = 200
"""Characters shown of where a redirect leads."""


class Refused(Exception):
    """An error answer that may be about the session."""

    def __init__(self, status: int, answer: Envelope) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.answer = answer


def refusal(
    server: str, response: httpx2.Response, why: str | None = None, answer: RawJson | None = None
) -> HttpRefused:
    """The error for a response without a message, or with an `answer` that says less than its status."""
    status = response.status_code
    message = f"HTTP {status} {response.reason_phrase}".rstrip()
    if 300 <= status < 400:
        location = hide_head(hide(response.headers.get("location", "")).partition("?")[0], _LOCATION)
        message += f", a redirect to {location!r}, which is not followed: put its target into the url"
    elif 200 <= status < 300:
        message += f" and {_content_type(response) or 'nothing'} in place of a message"
    after = retry_after(response) if status in OVERLOADED else None
    return HttpRefused(
        server=server,
        status=status,
        text=message if why is None else f"{message}: {why}",
        retry_after=after,
        answer=answer,
    )


def lost_request(server: str, reason: str, **members: object) -> UpstreamLost:
    """The error for a request that may have begun."""
    data: JsonObject = {"upstream": {"server": server, **members}, "outcome": "unknown"}
    return UpstreamLost(f'server "{server}" {reason}', data=data)


def retry_after(response: httpx2.Response) -> int | None:
    """The seconds of `Retry-After` (RFC 9110 §10.2.3), or None."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:_DIGITS]), _LONGEST)
    try:
        date = parsedate_to_datetime(text)
        seconds = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() - wall_time()
    except (ValueError, OverflowError):
        return None
    return min(max(math.ceil(seconds), 0), _LONGEST)


def kind_of(response: httpx2.Response) -> str:
    """The first media type, without parameters."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].partition(",")[0].strip().lower()


def _content_type(response: httpx2.Response) -> str:
    """The media type, masked before it is in lower case."""
    return hide_head(hide(response.headers.get("content-type", "")).partition(";")[0].strip().lower(), _LOCATION)


def is_json(response: httpx2.Response) -> bool:
    return response.status_code == 200 and kind_of(response) == JSON


def is_stream(response: httpx2.Response) -> bool:
    return response.status_code == 200 and kind_of(response) == EVENT_STREAM


def origin(url: str) -> str:
    """Scheme, host and port, which are not secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def code_of(exc: BaseException) -> str:
    """The error code of a failed connection."""
    for cause in _causes(exc):
        match cause:
            case ssl.SSLCertVerificationError(verify_code=code):
                return _CERTIFICATES.get(code, "tls_failed")
            case ssl.SSLError():
                return "tls_failed"
            case ConnectionRefusedError():
                return "connection_refused"
            case socket.gaierror():
                return "host_not_found"
            case httpx2.ProxyError():
                return "proxy_failed"
            case httpx2.TimeoutException() | TimeoutError():
                return "connect_timeout"
    return "unreachable"


def reason_of(exc: BaseException) -> str:
    """The reason of a failed connection."""
    for cause in _causes(exc):
        if isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_message:
            return f"its certificate cannot be verified: {cause.verify_message.rstrip('.')}"
        if isinstance(cause, OSError) and cause.strerror:
            if cause.errno and cause.strerror.startswith("Connect call failed"):  # asyncio's words, with an address
                return os.strerror(cause.errno)
            return cause.strerror
    return str(exc) or ("no answer in time" if isinstance(exc, httpx2.TimeoutException) else type(exc).__name__)


def _causes(exc: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        yield cause
        cause = cause.__cause__ or cause.__context__


def is_overload(refusal: Exception) -> bool:
    """Whether the server asks for fewer requests."""
    if not isinstance(refusal, HttpRefused):
        return False
    return refusal.status == 429 or (refusal.status in OVERLOADED and "retryAfter" in (refusal.data or {}))


def error_in(message: Envelope | BadMessage | None) -> RpcError | None:
    """The JSON-RPC error in a message, or None."""
    if not isinstance(message, Envelope) or message.kind != "error" or message.jsonrpc is Unset:
        return None
    return rpc_errors.from_wire(message.error)


def code_in(message: Envelope | BadMessage | None) -> int | None:
    """The code of the JSON-RPC error in a message, or None."""
    error = error_in(message)
    return None if error is None else error.code
