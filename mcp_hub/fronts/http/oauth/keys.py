"""The keys for access tokens: a JSON Web Key Set (RFC 7517), or a shared key.

A set is read hourly, and for an unknown key at most every 10 s; a failure leaves the last one for a day. The
configuration and `kid` choose keys, never the token.
"""

import base64
import json
import math
import os
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from errno import EFBIG
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
import msgspec

from mcp_hub.clock import Clock
from mcp_hub.extras import with_extra
from mcp_hub.files import read_file
from mcp_hub.logs import get_logger
from mcp_hub.types import JsonObject, plural

log = get_logger(__name__)

_LARGEST: Final = 256 << 10
"""Bytes of a key set."""
_MOST_KEYS: Final = 100
_TIMEOUT: Final = 5.0
"""Seconds that a key set may take; a token that waits for it waits no longer."""
_COOLDOWN: Final = 10.0
_TICK: Final = 30.0
_FRESH: Final = 3600.0
_STALE: Final = 86400.0


class _KeysUnusable(Exception):
    """A key set cannot be read."""


class Keys(Protocol):
    """One issuer's keys. `version` changes with them; `trouble` is why they are unavailable."""

    @property
    def version(self) -> object: ...

    @property
    def trouble(self) -> str | None: ...

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        """Keys that may have signed; without a `kid`, the only one."""

    async def refresh(self) -> None:
        """Reads the keys, unless just done. Raises nothing."""


def shared_key(secret: bytes, algorithms: Iterable[str]) -> Keys:
    """A shared secret (HMAC)."""
    return _SharedKey(secret, algorithms)


class _SharedKey:
    version = 0
    trouble = None

    def __init__(self, secret: bytes, algorithms: Iterable[str]) -> None:
        text = base64.urlsafe_b64encode(secret).rstrip(b"=").decode()
        self._keys = {name: jwt.PyJWK({"kty": "oct", "k": text}, name) for name in algorithms}

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        return [self._keys[algorithm]] if algorithm in self._keys else []

    async def refresh(self) -> None:
        """Does nothing."""


class _Reading(msgspec.Struct, frozen=True):
    """A key set as read; each key once per algorithm."""

    body: bytes = b""
    keys: Sequence[jwt.PyJWK] = ()
    at: float = -math.inf

    @property
    def ids(self) -> set[str | None]:
        return {key.key_id for key in self.keys}


class KeySet:
    """The keys of one source. `load` raises `_KeysUnusable`."""

    def __init__(
        self, name: str, load: Callable[[], Awaitable[bytes]], algorithms: Collection[str], clock: Clock
    ) -> None:
        self.name = name
        self._load = load
        self._algorithms = algorithms
        self._clock = clock
        self._lock = anyio.Lock()
        self._last = _Reading()
        self._tried_at = -math.inf
        self._problem: str | None = "not read yet"

    @property
    def version(self) -> object:
        return self._last.body

    @property
    def trouble(self) -> str | None:
        """The last failure, and whether keys became too old."""
        return self._problem if self._problem is None or self._age < _STALE else f"{self._problem}; no keys"

    @property
    def state(self) -> str:
        """One line for people: number, age, trouble."""
        keys = self._last.ids
        age = f", read {self._age:.0f} s ago" if keys else ""
        return f"{self.name}: {plural(len(keys), 'key')}{age}" + (f"; {self.trouble}" if self.trouble else "")

    @property
    def is_due(self) -> bool:
        return self._problem is not None or self._age >= _FRESH

    @property
    def _age(self) -> float:
        return self._clock.now() - self._last.at

    def find(self, kid: str | None, algorithm: str) -> Sequence[jwt.PyJWK]:
        fitting = [key for key in self._last.keys if key.algorithm_name == algorithm and self._age < _STALE]
        if kid is not None:
            return [key for key in fitting if key.key_id == kid]
        return fitting if len(fitting) == 1 else ()

    async def refresh(self) -> None:
        async with self._lock:  # who waits for it finds that it was done a moment ago
            if self._clock.now() - self._tried_at < _COOLDOWN:
                return
            self._tried_at = self._clock.now()
            last = self._last
            try:
                body = await self._load()
                keys = last.keys if body == last.body else parse_keys(body, self._algorithms)
            except _KeysUnusable as problem:
                self._problem = str(problem)
                log.warning("oauth_keys_unusable", source=self.name, reason=self._problem, keys=len(last.ids))
                return
            self._problem, self._last = None, _Reading(body, keys, self._clock.now())
            if keys is not last.keys:
                log.info("oauth_keys_read", source=self.name, keys=len(self._last.ids))


class KeyRing:
    """One key set per source. `is_believed` checks a file's owner."""

    def __init__(self, clock: Clock, is_believed: Callable[[os.stat_result], bool] = lambda _status: True) -> None:
        self._clock = clock
        self._is_believed = is_believed
        self._sets: weakref.WeakValueDictionary[tuple[str | Path, frozenset[str]], KeySet] = (
            weakref.WeakValueDictionary()
        )

    def key_set(self, source: str | Path, algorithms: frozenset[str]) -> KeySet:
        """The set of a URL or a file, which the caller must keep."""
        key_set = self._sets.get((source, algorithms))
        if key_set is None:
            load = partial(_read, source, self._is_believed) if isinstance(source, Path) else partial(_fetch, source)
            key_set = self._sets[source, algorithms] = KeySet(_shown(source), load, algorithms, self._clock)
        return key_set

    def states(self) -> list[str]:
        return [key_set.state for key_set in list(self._sets.values())]

    async def run(self) -> None:
        """Refreshes sets until cancelled."""
        while True:
            async with anyio.create_task_group() as tasks:
                for key_set in list(self._sets.values()):
                    if key_set.is_due:
                        tasks.start_soon(key_set.refresh)
            await anyio.sleep(_TICK)


def _shown(source: str | Path) -> str:
    """Without secrets."""
    if isinstance(source, Path):
        return str(source)
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def parse_keys(body: bytes, algorithms: Collection[str]) -> list[jwt.PyJWK]:
    """The keys, each once per usable algorithm. Raises `_KeysUnusable`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise _KeysUnusable("is not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise _KeysUnusable('is not a key set: expected {"keys": […]}')
    public = filter(_is_public, entries[:_MOST_KEYS])
    keys = [key for entry in public for name in algorithms if (key := _key(entry, name)) is not None]
    if not keys:
        raise _KeysUnusable(f"none of its keys ({len(entries)}) is a public one for {', '.join(sorted(algorithms))}")
    return keys


def _is_public(entry: object) -> bool:
    """A published private key is not secret any more."""
    if not isinstance(entry, dict) or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig" or "d" in entry:
        return False
    operations = entry.get("key_ops")
    return not isinstance(operations, list) or "verify" in operations


def _key(entry: JsonObject, algorithm: str) -> jwt.PyJWK | None:
    """The key, if it fits the algorithm."""
    if entry.get("alg") not in (None, algorithm):
        return None
    try:
        key = jwt.PyJWK(entry, algorithm)
        key.Algorithm.prepare_key(key.key)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    return None if key.Algorithm.check_key_length(key.key) else key


async def _read(path: Path, is_believed: Callable[[os.stat_result], bool]) -> bytes:
    def read() -> bytes:
        body, state = read_file(path, _LARGEST)
        if not is_believed(state):
            raise _KeysUnusable("belongs to another user, or others can write it. Run: mcp-hub check")
        return body

    try:
        body = await anyio.to_thread.run_sync(read)
    except OSError as error:
        if error.errno == EFBIG:
            raise _KeysUnusable(f"is larger than {_LARGEST} bytes") from None
        raise _KeysUnusable(f"cannot be read: {error.strerror}") from None
    return body


async def _fetch(url: str) -> bytes:
    is_here = (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")
    try:
        with anyio.fail_after(_TIMEOUT):
            async with (
                httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=not is_here) as http,
                http.stream("GET", url, headers={"accept": "application/json"}) as response,
            ):
                if response.status_code != 200:
                    raise _KeysUnusable(f"cannot be fetched: HTTP {response.status_code}")
                body = b""
                async for chunk in response.aiter_bytes():
                    body = _bounded(body + chunk)
                return body
    except TimeoutError:
        raise _KeysUnusable(f"cannot be fetched: no answer within {_TIMEOUT:g} s") from None
    except ImportError:
        raise _KeysUnusable(f"cannot be fetched: a SOCKS proxy needs {with_extra('socks')}") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise _KeysUnusable(f"cannot be fetched: {type(error).__name__}") from None


def _bounded(body: bytes) -> bytes:
    if len(body) > _LARGEST:
        raise _KeysUnusable(f"is larger than {_LARGEST} bytes")
    return body
