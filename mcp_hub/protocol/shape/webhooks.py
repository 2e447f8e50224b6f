"""Webhooks of MCP Events (SEP-3415): addresses, secrets, signatures, bodies and stored records. Pure.

Signatures have the form of standardwebhooks.com.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mcp_hub.addresses import normal_host, refused_webhook
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.protocol.shape.occurrences import error_member
from mcp_hub.types import JsonObject, RawJson

SUBSCRIPTION: Final = "X-MCP-Subscription-Id"
"""The header that says which subscription a message belongs to."""
WINDOW: Final = 300
"""Seconds that a message's time may differ from the receiver's clock."""
_KEY: Final = range(24, 65)
"""Bytes of a secret's key."""
_MOST_SIGNATURES: Final = 16
_LONGEST_URL: Final = 2048
_PORTS: Final = (None, 443, 8443)
"""Ports of public hosts: nobody knocks at other services by a webhook."""
_HEADER: Final = re.compile(r"[!-~](?:[ -~]{0,510}[!-~])?")
"""An id that a header can hold, with spaces inside."""
INCOMING: Final = "/v1/events/in/"
"""Path of the hub before the id of a subscription at a server."""
RECEIVERS: Final = "/.well-known/mcp-webhook-receiver.json"
"""The document of an origin with the paths that take webhooks without a challenge ("Endpoint verification")."""
_PLAIN_PATH: Final = re.compile(r"/|(?:/(?!\.\.?(?:/|$))[\w~.!$&'()*+,=:@-]+)+/?", re.ASCII)
_NUMBER: Final = re.compile(rb"[0-9]{1,12}")
LEAST_TTL: Final = 60.0
USUAL_TTL: Final = 86400.0
MOST_TTL: Final = 7 * 86400.0
"""Seconds until a subscription has to be refreshed: the least, without a wish of the client, and the most."""


_MOST_FAILURES: Final = 3
"""Messages given up in a row after which nothing is sent until the client refreshes."""


class _Delivery(msgspec.Struct, frozen=True):
    mode: str = "webhook"
    url: str = ""
    secret: str = ""


def delivery_of(raw: RawJson) -> _Delivery:
    """Raises `InvalidParams`. Checks nothing yet."""
    delivery = read_as(raw, _Delivery)
    if delivery is None or delivery.mode != "webhook":
        raise InvalidParams('params.delivery must be {"mode": "webhook", "url": …, "secret": …}')
    return delivery


def check_delivery(delivery: _Delivery, is_allowed: Callable[[str], bool]) -> None:
    """Raises `InvalidParams` for a refused address or an unfit secret.

    `is_allowed`: whether an operator has allowed a host, which may be in an inner network then.
    """
    if (problem := refused_callback(delivery.url, is_allowed)) is not None:
        raise InvalidParams(f"params.delivery.url is refused: {problem}")
    secret_key(delivery.secret)


def refused_callback(url: str, is_allowed: Callable[[str], bool]) -> str | None:
    """The reason not to send events to a URL, or None. Names are not resolved here."""
    if len(url) > _LONGEST_URL:
        return f"it has over {_LONGEST_URL} characters"
    host = host_of(url)
    allowed = (host,) if host and is_allowed(host) else ()
    problem = refused_webhook(url, allowed)
    if problem is not None:
        return problem.partition(". If that is meant")[0]
    if not allowed and urlsplit(url).port not in _PORTS:
        return "it has a port other than 443 and 8443"
    return None


def host_of(url: str) -> str:
    """The normal host of a URL; empty for none."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    return normal_host(host) or normal_host(f"[{host}]") or ""


def secret_key(secret: str) -> bytes:
    """The key of a secret. Raises `InvalidParams`."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith("whsec_") or len(key) not in _KEY:
        raise InvalidParams("params.delivery.secret must be whsec_ and Base64 of 24 to 64 bytes")
    return key


def secret_of(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def subscription_id(principal: str, url: str, name: str, arguments: bytes) -> str:
    """The id of the subscription with this key; stable, and no secret."""
    text = msgspec.json.encode([principal, url, name, arguments.decode()])
    return "sub_" + blake2b(text, digest_size=16).hexdigest()


def message_id(event_id: str) -> str:
    """The `webhook-id`: the occurrence's id, if a header can hold it."""
    if _HEADER.fullmatch(event_id):
        return event_id
    return "msg_event_" + blake2b(event_id.encode("utf-8", "replace"), digest_size=16).hexdigest()


def signed(keys: Sequence[bytes], id_: str, body: bytes, at: float) -> dict[str, str]:
    """The headers of a message that is signed with each of `keys`."""
    signatures = [_signature(key, id_.encode(), b"%d" % int(at), body) for key in keys]
    return {"webhook-id": id_, "webhook-timestamp": str(int(at)), "webhook-signature": " ".join(signatures)}


def _signature(key: bytes, id_: bytes, at: bytes, body: bytes) -> str:
    return "v1," + base64.b64encode(hmac.digest(key, b"%s.%s.%s" % (id_, at, body), sha256)).decode()


def message_problem(keys: Sequence[bytes], headers: Mapping[bytes, bytes], body: bytes, wall: float) -> str | None:
    """The reason to refuse a message, or None for one that is signed with one of `keys`, and new enough."""
    id_, at = headers.get(b"webhook-id", b""), headers.get(b"webhook-timestamp", b"")
    signatures = headers.get(b"webhook-signature", b"").split(b" ", _MOST_SIGNATURES)[:_MOST_SIGNATURES]
    if not _HEADER.fullmatch(id_.decode("latin-1")) or not _NUMBER.fullmatch(at):
        return "webhook-id or webhook-timestamp is missing or malformed"
    expected = [_signature(key, id_, at, body).encode() for key in keys]
    matches = [hmac.compare_digest(each, signature) for each in signatures for signature in expected]
    if not any(matches):
        return "the signature does not fit"
    return None if abs(wall - int(at)) <= WINDOW else "the time is too far from the hub's"


def granted(wish: float | UnsetType | None, *, may_last: bool) -> float | None:
    """Seconds until a refresh; None: never, if the client asked for it and it `may_last`.

    Others show a valid token each day.
    """
    if wish is None and may_last:
        return None
    if wish is UNSET or wish is None:
        return USUAL_TTL
    return min(max(wish / 1000, LEAST_TTL), MOST_TTL if may_last else USUAL_TTL)


def date_of(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def control_body(kind: str, **members: object) -> bytes:
    """The body of a `gap`, `terminated` or `verification`."""
    return object_bytes({"type": kind, **members})


def terminated_body(error: RpcError) -> bytes:
    return control_body("terminated", error=error_member(error))


def has_challenge(answer: bytes, challenge: str) -> bool:
    """Whether an answer to a verification has its challenge."""
    read = read_as(msgspec.Raw(answer), _Challenge)
    return read is not None and hmac.compare_digest(read.challenge.encode("utf-8", "replace"), challenge.encode())


class _Challenge(msgspec.Struct, frozen=True):
    challenge: str


def takes_path(document: bytes, path: str) -> bool:
    """Whether an origin's document lets webhooks lead to this path.

    A path that servers and proxies may read differently is not covered.
    """
    read = read_as(msgspec.Raw(document), _Receivers)
    if read is None or not _PLAIN_PATH.fullmatch(path):
        return False
    prefixes = [prefix for prefix in read.receivers if isinstance(prefix, str) and _PLAIN_PATH.fullmatch(prefix)]
    return any(path == prefix or path.startswith(prefix.rstrip("/") + "/") for prefix in prefixes)


class _Receivers(msgspec.Struct, frozen=True):
    receivers: list[object]


def answer_of(id_: str, expires: float | None, cursor: str | None, *, truncated: bool, status: JsonObject) -> bytes:
    """The result of `events/subscribe`; `expires` in Unix seconds."""
    return object_bytes(
        {
            "resultType": "complete",
            "id": id_,
            "refreshBefore": None if expires is None else date_of(expires),
            "cursor": cursor,
            "truncated": truncated,
            "deliveryStatus": status,
        }
    )


class Webhook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored record of a subscription. `name` is the type's as the client knows it, `key` as the `server` does.

    `arguments` are canonical.

    `secret` and `former` are sealed; the latter signs, too, until `former_until`. `expires` None: never. `is_active`:
    something is sent. `failures`: messages given up in a row, `given_up`: in all. `since`: nothing of before then is
    sent. `claims`: see `Caller`. `stamp` differs after each refresh. Times are Unix seconds.
    """

    id: str
    principal: str
    url: str
    name: str
    arguments: str
    server: str
    key: str
    secret: str
    profile: str | None = None
    claims: str = ""
    former: str = ""
    former_until: float = 0.0
    expires: float | None = None
    cursor: str = ""
    since: float | None = None
    is_active: bool = True
    failures: int = 0
    given_up: int = 0
    last_sent: float | None = None
    last_error: str = ""
    failed_since: float | None = None
    stamp: str = ""

    @property
    def status(self) -> JsonObject:
        """The `deliveryStatus`."""
        status: JsonObject = {
            "active": self.is_active,
            "lastDeliveryAt": None if self.last_sent is None else date_of(self.last_sent),
            "lastError": self.last_error or None,
        }
        return status if self.failed_since is None else {**status, "failedSince": date_of(self.failed_since)}

    def taken(self, cursor: str, at: float) -> "Webhook":
        """The record after a 2xx."""
        return replace(self, cursor=cursor, failures=0, last_sent=at, last_error="", failed_since=None, is_active=True)

    def failed(self, problem: str, at: float) -> "Webhook":
        """The record after a failed attempt."""
        return replace(self, last_error=problem, failed_since=self.failed_since or at)

    def gave_up(self, cursor: str) -> "Webhook":
        """The record after a message that was given up."""
        failures = self.failures + 1
        return replace(
            self, cursor=cursor, failures=failures, given_up=self.given_up + 1, is_active=failures < _MOST_FAILURES
        )
