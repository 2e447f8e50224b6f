"""Clients: registered ones (RFC 7591), and client ID metadata documents.

A registration is sealed in its id, not stored: a flood of them costs nothing. A document is fetched only for a person
who has logged in, without redirects, and kept for five minutes.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mcp_hub.errors import HubError, Rejected
from mcp_hub.masking import hide_head, shown

_PREFIX: Final = "mcphub-client."
_LONGEST_ID: Final = 2048
_LONGEST_NAME: Final = 80
_LONGEST_URI: Final = 512
_MOST_URIS: Final = 8
_FRESH: Final = 300.0
_MOST_DOCUMENTS: Final = 64
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_SCHEMES: Final = frozenset(
    (
        "claude",
        "cursor",
        "goose",
        "jetbrains",
        "kiro",
        "raycast",
        "vscode",
        "vscode-insiders",
        "warp",
        "windsurf",
        "zed",
    )
)
"""Private schemes of known programs; any other has to be a reversed domain (RFC 8252 §7.1)."""
_SCHEME: Final = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")
_URI: Final = re.compile(r"[\x21-\x7e]+")
_NOT_IN_URI: Final = frozenset('"<>\\^`{|}')
Fetch = Callable[[str], Awaitable[bytes]]
"""Fetches a document from a public address. Raises `HubError`."""


class OAuthClient(msgspec.Struct, frozen=True):
    """A client with its redirect addresses; `name` is what it says itself."""

    id: str
    name: str
    redirects: tuple[str, ...]

    @property
    def host(self) -> str:
        """The host that vouches; empty for a registered client."""
        return "" if self.id.startswith(_PREFIX) else urlsplit(self.id).hostname or ""

    def allows(self, redirect: str) -> bool:
        """Exactly, but for the port of an address of the person's machine (RFC 8252 §7.3)."""
        if redirect in self.redirects:
            return True
        is_near = why_no_redirect(redirect) is None and _is_loopback(redirect)
        return is_near and any(
            _is_loopback(uri) and _without_port(uri) == _without_port(redirect) for uri in self.redirects
        )


class _Sealed(msgspec.Struct, array_like=True):
    name: str
    redirects: tuple[str, ...]


class _Metadata(msgspec.Struct):
    redirect_uris: tuple[str, ...]
    client_id: str = ""
    client_name: str = ""
    grant_types: tuple[str, ...] = ("authorization_code",)
    response_types: tuple[str, ...] = ("code",)


class OAuthClients:
    """Finds clients by their ids. `seal` makes a digest, `clock` returns seconds."""

    def __init__(self, seal: Callable[..., str], fetch: Fetch, clock: Callable[[], float]) -> None:
        self._seal = seal
        self._fetch = fetch
        self._clock = clock
        self._documents: OrderedDict[str, tuple[float, OAuthClient]] = OrderedDict()

    def register(self, body: bytes) -> OAuthClient:
        """Raises `Rejected`."""
        metadata = _decoded(body, "invalid_client_metadata")
        redirects = _checked(metadata, "invalid_redirect_uri")
        sealed = urlsafe_b64encode(msgspec.json.encode(_Sealed(_name(metadata, ""), redirects))).rstrip(b"=").decode()
        id_ = f"{_PREFIX}{sealed}.{self._seal('client', sealed)}"
        if len(id_) > _LONGEST_ID:
            raise Rejected("invalid_client_metadata", "the registration is too long")
        return OAuthClient(id_, _name(metadata, "A client"), redirects)

    def registered(self, id_: str) -> OAuthClient | None:
        """The client of a registration; None for the URL of a document. Raises `Rejected` for any other id."""
        if not 0 < len(id_) <= _LONGEST_ID:
            raise Rejected("invalid_client", "client_id is missing or too long")
        if not id_.startswith(_PREFIX):
            if (problem := _why_no_document(id_)) is not None:
                raise Rejected("invalid_client", f"client_id is not of this hub, and {problem}")
            return None
        sealed, _, seal = id_.removeprefix(_PREFIX).partition(".")
        # the digest is over the text as it is: nothing is decoded that this hub did not make
        if not sealed.isascii() or self._seal("client", sealed) != seal:
            raise Rejected("invalid_client", "client_id is not of this hub. Register again.")
        content = msgspec.json.decode(urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4)), type=_Sealed)
        return OAuthClient(id_, content.name or "A client", content.redirects)

    async def find(self, id_: str) -> OAuthClient:
        """The client, for a person who has logged in. Raises `Rejected`."""
        client = self.registered(id_)
        if client is not None:
            return client
        until, client = self._documents.get(id_, (0.0, None))
        if client is not None and self._clock() < until:
            return client
        try:
            body = await self._fetch(id_)
        except HubError as problem:
            raise Rejected("invalid_client", f"its document cannot be fetched: {problem}") from None
        metadata = _decoded(body, "invalid_client")
        if metadata.client_id != id_:
            raise Rejected("invalid_client", "its document is about another client_id")
        client = OAuthClient(id_, _name(metadata, urlsplit(id_).hostname or ""), _checked(metadata, "invalid_client"))
        self._documents.pop(id_, None)
        self._documents[id_] = self._clock() + _FRESH, client
        while len(self._documents) > _MOST_DOCUMENTS:
            self._documents.popitem(last=False)
        return client


def why_no_redirect(uri: str) -> str | None:
    """Why nobody is sent to an address with a code."""
    if len(uri) > _LONGEST_URI or not _URI.fullmatch(uri) or _NOT_IN_URI & set(uri):
        return "is not a URL, or too long"
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "is not a URL"
    if "#" in uri:
        return "has a fragment"
    if "@" in parts.netloc:
        return "has a user or a password"
    if parts.scheme in ("https", "http"):
        if not host or not re.fullmatch(r"[a-z0-9.:_-]+", host):
            return "has no host, or one that is not in ASCII"
        return "is http:// to another machine" if parts.scheme == "http" and host not in _LOOPBACK else None
    is_private = parts.scheme in _SCHEMES or _SCHEME.fullmatch(parts.scheme) is not None
    return None if is_private else "has a scheme that is neither https nor a program's own, such as com.example.app"


def source_of(redirect: str) -> str:
    """The address as a source of a content security policy; `why_no_redirect` found nothing."""
    parts = urlsplit(redirect)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("https", "http") else f"{parts.scheme}:"


def place_of(redirect: str) -> str:
    """The place that an address leads to, for people."""
    parts = urlsplit(redirect)
    if parts.scheme not in ("https", "http"):
        return f"the program on this device that opens {parts.scheme}: addresses"
    return "a program on this computer" if parts.hostname in _LOOPBACK else parts.netloc


def _why_no_document(id_: str) -> str | None:
    if not _URI.fullmatch(id_) or _NOT_IN_URI & set(id_):
        return "not a URL"
    try:
        parts = urlsplit(id_)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "not a URL"
    if parts.scheme != "https" or not host or "@" in parts.netloc or "#" in id_ or parts.path in ("", "/"):
        return "not an https:// URL with a path"
    return "has dots in its path" if {".", ".."} & set(parts.path.split("/")) else None


def _decoded(body: bytes, code: str) -> _Metadata:
    try:
        return msgspec.json.decode(body, type=_Metadata)
    except (ValueError, RecursionError) as problem:
        raise Rejected(code, f"not the metadata of a client: {shown(hide_head(str(problem), 200))}") from None


def _checked(metadata: _Metadata, code: str) -> tuple[str, ...]:
    uris = metadata.redirect_uris
    if not 0 < len(uris) <= _MOST_URIS:
        raise Rejected(code, f"a client has 1 to {_MOST_URIS} redirect_uris")
    if (problem := next(filter(None, map(why_no_redirect, uris)), None)) is not None:
        raise Rejected(code, f"one of redirect_uris {problem}")
    if "authorization_code" not in metadata.grant_types or "code" not in metadata.response_types:
        raise Rejected("invalid_client_metadata", "the hub has authorization_code and refresh_token only")
    return uris


def _name(metadata: _Metadata, otherwise: str) -> str:
    """One printable line, without marks that turn text around."""
    head = hide_head(metadata.client_name, _LONGEST_NAME)
    return " ".join("".join(char if char.isprintable() else " " for char in head).split()) or otherwise


def _is_loopback(uri: str) -> bool:
    parts = urlsplit(uri)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


def _without_port(uri: str) -> tuple[str, str | None, str, str]:
    parts = urlsplit(uri)
    return parts.scheme, parts.hostname, parts.path, parts.query
