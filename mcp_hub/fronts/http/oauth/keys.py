"""The keys that access tokens are checked with: a JSON Web Key Set (RFC 7517) by URL or file, or one shared key.

A set is read at the start, every hour, and when a token names a key that is not in it, at most every 10 s. What cannot
be read leaves the last set in place for a day; without one every token is refused. Keys are chosen by the configured
algorithms and the token's `kid`: where a token itself says its key is (`jwk`, `jku`, `x5u`, `x5c`) is never looked at.
"""

import base64
import json
import os
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
import msgspec

from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.types import JsonObject

log = get_logger(__name__)

_LARGEST: Final = 256 << 10
"""Bytes of a key set."""
_MOST_KEYS: Final = 100
_SHORTEST_RSA: Final = 2048
"""Bits (RFC 7518 §3.3)."""
_TIMEOUT: Final = 5.0
"""Seconds that a key set may take; a token that waits for it waits no longer."""
_COOLDOWN: Final = 10.0
_TICK: Final = 30.0
_FRESH: Final = 3600.0
_STALE: Final = 86400.0
_OF_CURVE: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_OF_RSA: Final = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))


class KeysUnusable(Exception):
    """A key set that cannot be had or read; the message is for people and holds nothing of it."""


class Keys(Protocol):
    """Where the keys of one issuer are. `version` changes with them; `trouble` says why they cannot be had now."""

    @property
    def version(self) -> int: ...

    @property
    def trouble(self) -> str | None: ...

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        """Those that may have signed; without a `kid` the one that there is, if there is no other."""
        ...

    async def refresh(self) -> None:
        """Reads them again unless that was done a moment ago. Raises nothing."""
        ...


class _Key(msgspec.Struct, frozen=True):
    kid: str | None
    by_algorithm: Mapping[str, jwt.PyJWK]


class SharedKey:
    """One secret that issuer and hub have in common (HMAC)."""

    version = 0
    trouble = None

    def __init__(self, secret: bytes, algorithms: Iterable[str]) -> None:
        text = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
        self._keys = {name: jwt.PyJWK({"kty": "oct", "k": text}, name) for name in algorithms}

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        key = self._keys.get(algorithm)
        return () if key is None else (key,)

    async def refresh(self) -> None:
        """There is nothing to read."""


class KeySource(msgspec.Struct, frozen=True):
    """A key set by `url` or `path`, and the algorithms that its keys are wanted for."""

    url: str | None
    path: Path | None
    algorithms: frozenset[str]

    @property
    def name(self) -> str:
        """The part of it that may be shown."""
        if self.url is None:
            return str(self.path)
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"


class KeySet:
    """The keys of one source as they were read last. `load` raises `KeysUnusable`."""

    def __init__(
        self, name: str, load: Callable[[], Awaitable[bytes]], algorithms: Collection[str], clock: Clock
    ) -> None:
        self.name = name
        self.version = 0
        self._load = load
        self._algorithms = algorithms
        self._clock = clock
        self._lock = anyio.Lock()
        self._keys: Sequence[_Key] = ()
        self._body = b""
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._problem: str | None = "not read yet"

    @property
    def trouble(self) -> str | None:
        """The reason of the last failure; it says so if the keys have become too old to use."""
        if self._problem is None or self._is_usable():
            return self._problem
        return f"{self._problem}; no keys"

    @property
    def state(self) -> str:
        """One line for people: how many keys there are, how old, and what is wrong."""
        age = "" if self._read_at is None else f", read {self._clock.now() - self._read_at:.0f} s ago"
        return f"{self.name}: {len(self._keys)} keys{age}" + (f"; {self.trouble}" if self.trouble else "")

    @property
    def is_due(self) -> bool:
        return self._problem is not None or self._read_at is None or self._clock.now() - self._read_at >= _FRESH

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        if not self._is_usable():
            return ()
        fitting = [key for key in self._keys if algorithm in key.by_algorithm]
        if kid is not None:
            return [key.by_algorithm[algorithm] for key in fitting if key.kid == kid]
        return [fitting[0].by_algorithm[algorithm]] if len(fitting) == 1 else ()

    def _is_usable(self) -> bool:
        return self._read_at is not None and self._clock.now() - self._read_at < _STALE

    async def refresh(self) -> None:
        async with self._lock:  # who waits for it finds that it was done a moment ago
            now = self._clock.now()
            if self._tried_at is not None and now - self._tried_at < _COOLDOWN:
                return
            self._tried_at = now
            try:
                body = await self._load()
                keys = self._keys if body == self._body else parse_keys(body, self._algorithms)
            except KeysUnusable as problem:
                self._problem = str(problem)
                log.warning("oauth_keys_unusable", source=self.name, reason=self._problem, keys=len(self._keys))
                return
            if body != self._body:
                self._keys, self._body = keys, body
                self.version += 1
                log.info("oauth_keys_read", source=self.name, keys=len(keys))
            self._problem, self._read_at = None, self._clock.now()


class KeyRing:
    """The key sets that some guard uses, one a source: the next guard finds them read. `run` keeps them fresh.

    `is_believed` says of a file whether it is of somebody who may say who comes in.
    """

    def __init__(self, clock: Clock, is_believed: Callable[[os.stat_result], bool] = lambda found: True) -> None:
        self._clock = clock
        self._is_believed = is_believed
        self._sets: weakref.WeakValueDictionary[KeySource, KeySet] = weakref.WeakValueDictionary()

    def use(self, sources: Iterable[KeySource]) -> Mapping[KeySource, KeySet]:
        """The sets of these sources, which are the caller's to keep; one that is in use already has its keys."""
        found = {source: self._sets.get(source) or self._made(source) for source in dict.fromkeys(sources)}
        self._sets.update(found)
        return found

    def states(self) -> list[str]:
        """A line for each set (`KeySet.state`)."""
        return [found.state for found in list(self._sets.values())]

    async def run(self) -> None:
        """Reads what is due; runs until cancelled."""
        while True:
            async with anyio.create_task_group() as tasks:
                for found in list(self._sets.values()):
                    if found.is_due:
                        tasks.start_soon(found.refresh)
            await anyio.sleep(_TICK)

    def _made(self, source: KeySource) -> KeySet:
        path, is_believed = source.path, self._is_believed
        load = partial(_read, path, is_believed) if path is not None else partial(_fetch, source.url or "")
        return KeySet(source.name, load, source.algorithms, self._clock)


def parse_keys(body: bytes, algorithms: Collection[str]) -> list[_Key]:
    """The keys of a set that can be used for `algorithms`; others are passed over. Raises `KeysUnusable`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise KeysUnusable("is not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise KeysUnusable('is not a key set: expected {"keys": […]}')
    found = [key for entry in entries[:_MOST_KEYS] if (key := _key(entry, algorithms)) is not None]
    if not found:
        raise KeysUnusable(f"none of its {len(entries)} keys is a public one for {', '.join(sorted(algorithms))}")
    return found


def _key(entry: object, algorithms: Collection[str]) -> _Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or "d" in entry:
        return None  # a private key in public has no secret left
    operations = entry.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    kid = entry.get("kid")
    made = {name: key for name in _suitable(entry) & set(algorithms) if (key := _made_key(entry, name)) is not None}
    return _Key(kid if isinstance(kid, str) else None, made) if made else None


def _suitable(entry: JsonObject) -> set[str]:
    """Algorithms of a key's kind, or the only one that it says it is for; none for a symmetric key."""
    match entry.get("kty"):
        case "RSA":
            kind = set(_OF_RSA)
        case "EC":
            kind = {_OF_CURVE.get(str(entry.get("crv")), "")}
        case "OKP" if entry.get("crv") == "Ed25519":
            kind = {"EdDSA"}
        case _:
            return set()
    return kind if entry.get("alg") is None else kind & {str(entry["alg"])}


def _made_key(entry: JsonObject, algorithm: str) -> jwt.PyJWK | None:
    try:
        key = jwt.PyJWK(entry, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if algorithm in _OF_RSA and key.key.key_size < _SHORTEST_RSA:
        return None
    return key


async def _read(path: Path, is_believed: Callable[[os.stat_result], bool]) -> bytes:
    def read() -> bytes:
        with path.open("rb") as file:
            if not is_believed(os.fstat(file.fileno())):
                raise KeysUnusable("is somebody else's, or can be written by others; see mcp-hub check")
            return file.read(_LARGEST + 1)

    try:
        body = await anyio.to_thread.run_sync(read)
    except OSError as error:
        raise KeysUnusable(f"cannot be read: {error.strerror}") from None
    return _bounded(body)


async def _fetch(url: str) -> bytes:
    is_here = (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")
    try:
        with anyio.fail_after(_TIMEOUT):
            async with (
                httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=not is_here) as http,
                http.stream("GET", url, headers={"accept": "application/json"}) as response,
            ):
                if response.status_code != 200:
                    raise KeysUnusable(f"cannot be fetched: HTTP {response.status_code}")
                body = b""
                async for chunk in response.aiter_bytes():
                    body = _bounded(body + chunk)
                return body
    except TimeoutError:
        raise KeysUnusable(f"cannot be fetched: no answer within {_TIMEOUT:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise KeysUnusable(f"cannot be fetched: {type(error).__name__}") from None


def _bounded(body: bytes) -> bytes:
    if len(body) > _LARGEST:
        raise KeysUnusable(f"is larger than {_LARGEST} bytes")
    return body
