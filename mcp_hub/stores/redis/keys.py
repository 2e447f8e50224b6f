"""The names of keys. What one script touches has one hash tag, `{…}`, and so one slot of a cluster."""

import hashlib
import re
from typing import Final, NamedTuple

from mcp_hub.types import CallId

_STREAM: Final = re.compile(rb"st_[0-9A-Za-z_-]{1,64}")
_INSTANCE: Final = re.compile(rb"in_[0-9A-Za-z_-]{1,64}")
_KEY: Final = re.compile(r"\{(replicas|every|ended|sessions|secret|history|st_|in_|p:|k:|h:|d:)[^{}]*\}(.*)", re.DOTALL)
_TYPES: Final = {
    "replicas": "hash", "every": "zset", "ended": "zset", "secret": "string", "p:": "zset", "k:": "hash",
    "h:": "string", "sessions": "hash", "sessions:x": "zset", "sessions:c": "stream",
    "st_": "hash", "st_:e": "stream", "st_:p": "hash", "st_:m": "list",
    "in_:r": "set", "in_:m": "set", "in_:w": "stream",
    "d:": "zset", "d::s": "hash",
    "history": "hash", "history:h": "hash", "history:t": "hash", "history:r": "hash", "history:l": "list",
}  # fmt: skip
"""The type of a key, by the kind in its hash tag and what follows that."""


class _StreamKeys(NamedTuple):
    """The keys of one stream, in one slot: row, chunks of events, parts of long chunks, messages for its owner."""

    row: str
    events: str
    parts: str
    messages: str


class _DocumentKeys(NamedTuple):
    """The keys of a principal's long results, in one slot: a sorted set of their ids by the time at which they expire,
    a hash of their sizes, and the texts.
    """

    ends: str

    @property
    def sizes(self) -> str:
        return f"{self.ends}:s"

    def body(self, id_: str) -> str:
        return f"{self.ends}:{id_}"


class _HistoryKeys(NamedTuple):
    """The keys of past calls, in one slot: a hash of what is known of each batch, hashes of their columns and of texts,
    a hash of the replicas that wrote last, and a list of what was lost.
    """

    batches: str

    @property
    def heads(self) -> str:
        return f"{self.batches}:h"

    @property
    def texts(self) -> str:
        return f"{self.batches}:t"

    @property
    def runs(self) -> str:
        return f"{self.batches}:r"

    @property
    def losses(self) -> str:
        return f"{self.batches}:l"


class RedisKeys:
    """All keys begin with `prefix`, one for each deployment on a server."""

    def __init__(self, prefix: str) -> None:
        self.replicas = f"{prefix}{{replicas}}"
        """A hash: of each replica, when it was last alive (milliseconds of the server's clock)."""
        self.every = f"{prefix}{{every}}"
        """A sorted set: the places of all streams, by the time of their creation."""
        self.ended = f"{prefix}{{ended}}"
        """A sorted set: the places of streams that have ended, by the time at which they expire."""
        self.sessions = f"{prefix}{{sessions}}"
        self.session_ends = f"{prefix}{{sessions}}:x"
        """A hash of handshake sessions, and a sorted set of their ids by the time at which they expire."""
        self.session_changes = f"{prefix}{{sessions}}:c"
        """A Redis stream: sessions that were changed or ended, and servers whose lists were, each with the replica."""
        self.secret = f"{prefix}{{secret}}"
        """A text: the key with which all replicas seal."""
        self.history = _HistoryKeys(f"{prefix}{{history}}")
        self.prefix = prefix

    def type_of(self, key: str) -> str:
        """The type that the server has to report for this key."""
        parts = _KEY.match(key, len(self.prefix))
        return "string" if parts is None else _TYPES.get(parts[1] + parts[2], "string")

    def stream(self, id_: CallId) -> _StreamKeys:
        row = f"{self.prefix}{{{id_}}}"
        return _StreamKeys(row, f"{row}:e", f"{row}:p", f"{row}:m")

    def running(self, instance: str) -> str:
        """A set: the streams of a replica that have not ended."""
        return f"{self.prefix}{{{instance}}}:r"

    def called(self, instance: str) -> str:
        """A set: the streams of a replica for which messages wait."""
        return f"{self.prefix}{{{instance}}}:m"

    def bell(self, instance: str) -> str:
        """A Redis stream of one entry, whose id changes when the replica is to look."""
        return f"{self.prefix}{{{instance}}}:w"

    def principal(self, principal: str) -> str:
        """A sorted set: the places of a principal's streams, by the time of their creation."""
        return self.hashed(hashed(principal))

    def hashed(self, principal: str) -> str:
        """The same, of a principal's hash."""
        return f"{self.prefix}{{p:{principal}}}"

    def request(self, principal: str, key: str) -> str:
        """A hash: of each idempotency key of one request, the stream that has it and since when."""
        return f"{self.prefix}{{k:{hashed(principal)}:{hashed(key.partition(chr(10))[0])}}}"

    def held(self, what: str) -> str:
        """A text: the replica that has something which one replica has at a time."""
        return f"{self.prefix}{{h:{hashed(what)}}}"

    def documents(self, principal: str) -> "_DocumentKeys":
        return _DocumentKeys(f"{self.prefix}{{d:{hashed(principal)}}}")


def hashed(text: str) -> str:
    """Stands for a name that may have any character and length."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def quarantined(key: str) -> str:
    """The key under which bad records of another key are kept for a while, in its slot."""
    return f"{key}:bad"


def stream_id(value: bytes) -> CallId | None:
    """A stream's id as it stands in a record; None for anything else, of which no key may be made."""
    return CallId(value.decode("ascii")) if _STREAM.fullmatch(value) else None


def instance_id(value: bytes) -> str | None:
    """A replica's id as it stands in a record; None for anything else, of which no key may be made."""
    return value.decode("ascii") if _INSTANCE.fullmatch(value) else None
