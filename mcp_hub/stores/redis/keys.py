"""Names of keys, and the Lua scripts of limits and locks. Keys of one script share a hash tag `{…}`, so a slot."""

import hashlib
import re
from typing import Final, NamedTuple

from mcp_hub.types import CallId

_STREAM: Final = re.compile(rb"st_[0-9A-Za-z_-]{1,64}")
_INSTANCE: Final = re.compile(rb"in_[0-9A-Za-z_-]{1,64}")
_KEY: Final = re.compile(
    r"\{(replicas|every|ended|sessions|secret|history|accounts|st_|in_|p:|k:|h:|d:|l:|x:)[^{}]*\}(.*)", re.DOTALL
)
_TYPES: Final = {
    "replicas": "hash", "every": "zset", "ended": "zset", "secret": "string", "p:": "zset", "k:": "hash",
    "h:": "string", "sessions": "hash", "sessions:x": "zset", "sessions:c": "stream",
    "st_": "hash", "st_:e": "stream", "st_:p": "hash", "st_:m": "list",
    "in_:r": "set", "in_:m": "set", "in_:w": "stream",
    "accounts": "hash", "accounts:u": "zset", "accounts:n": "zset",
    "accounts:p": "hash", "accounts:p:u": "zset", "accounts:p:n": "zset",
    "d:": "zset", "d::s": "hash", "l::b": "list", "l::h": "hash",
    "history": "hash", "history:h": "hash", "history:t": "hash", "history:r": "hash", "history:l": "list",
}  # fmt: skip
"""The type of a key, by the kind in its hash tag and what follows that."""


class _StreamKeys(NamedTuple):
    row: str
    events: str
    parts: str
    messages: str


class _DocumentKeys(NamedTuple):
    ends: str

    @property
    def sizes(self) -> str:
        return f"{self.ends}:s"

    def body(self, id_: str) -> str:
        return f"{self.ends}:{id_}"


class _RowKeys(NamedTuple):
    """A hash of encrypted rows; sorted sets of names by last use and by last write; the number of writes."""

    tag: str
    kind: str = ""

    @property
    def pending(self) -> "_RowKeys":
        return self._replace(kind=":p")

    @property
    def rows(self) -> str:
        return f"{self.tag}{self.kind}"

    @property
    def uses(self) -> str:
        return f"{self.tag}{self.kind}:u"

    @property
    def writes(self) -> str:
        return f"{self.tag}{self.kind}:w"

    @property
    def written(self) -> str:
        return f"{self.tag}{self.kind}:n"


class _HistoryKeys(NamedTuple):
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
    """All keys begin with `prefix`, one for each deployment."""

    def __init__(self, prefix: str) -> None:
        self.replicas = f"{prefix}{{replicas}}"
        """A hash: how many times each replica has said that it is alive; 0 when it has left."""
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
        self.accounts = _RowKeys(f"{prefix}{{accounts}}")
        self.history = _HistoryKeys(f"{prefix}{{history}}")
        self.prefix = prefix

    def type_of(self, key: str) -> str:
        """The Redis type of a valid key."""
        parts = _KEY.match(key, len(self.prefix))
        if parts is None:
            return "string"
        ends = parts[2][:2] if parts[1] == "l:" else parts[2]  # a name follows there
        return _TYPES.get(parts[1] + ends, "string")

    def stream(self, id_: CallId) -> _StreamKeys:
        row = f"{self.prefix}{{{id_}}}"
        return _StreamKeys(row, f"{row}:e", f"{row}:p", f"{row}:m")

    def running(self, instance: str) -> str:
        """The replica's running streams: a set."""
        return f"{self.prefix}{{{instance}}}:r"

    def called(self, instance: str) -> str:
        """The replica's streams with messages: a set."""
        return f"{self.prefix}{{{instance}}}:m"

    def bell(self, instance: str) -> str:
        """A one-entry Redis stream; a new entry wakes the replica."""
        return f"{self.prefix}{{{instance}}}:w"

    def principal(self, principal: str) -> str:
        """The principal's streams by creation: a sorted set."""
        return self.hashed(hashed(principal))

    def hashed(self, principal: str) -> str:
        return f"{self.prefix}{{p:{principal}}}"

    def request(self, principal: str, key: str) -> str:
        """Idempotency keys of a request, with stream and time: a hash."""
        return f"{self.prefix}{{k:{hashed(principal)}:{hashed(key.partition(chr(10))[0])}}}"

    def lock(self, name: str) -> str:
        return f"{self.prefix}{{h:{hashed(name)}}}"

    def counts(self, group: str, name: str) -> tuple[str, str]:
        """Counted calls: the times at which they have begun, newest first, a list; those that run, each with its
        replica, a hash.
        """
        slot = f"{self.prefix}{{l:{hashed(group)}}}"
        return f"{slot}:b{hashed(name)}", f"{slot}:h{hashed(name)}"

    def record(self, name: str) -> str:
        return f"{self.prefix}{{x:{hashed(name)}}}"

    def documents(self, principal: str) -> "_DocumentKeys":
        return _DocumentKeys(f"{self.prefix}{{d:{hashed(principal)}}}")


def hashed(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def quarantined(key: str) -> str:
    return f"{key}:bad"


def stream_id(value: bytes) -> CallId | None:
    """None if invalid."""
    return CallId(value.decode("ascii")) if _STREAM.fullmatch(value) else None


def instance_id(value: bytes) -> str | None:
    """None if invalid."""
    return value.decode("ascii") if _INSTANCE.fullmatch(value) else None


COUNT: Final = """
local HOLDER, REPLICA, pause = ARGV[1], ARGV[2], 0
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS / 2 do
  local begun, holders = KEYS[2 * i - 1], KEYS[2 * i]
  local count, period, running = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  if running > 0 and redis.call('HEXISTS', holders, HOLDER) == 0 and redis.call('HLEN', holders) >= running then
    return {'full', i}
  end
  local oldest = count > 0 and redis.call('LINDEX', begun, count - 1)
  local at = oldest and tonumber(string.match(oldest, '^%d+'))
  if at and at <= now and at + period > now then pause = math.max(pause, at + period - now) end
end
if pause > 0 then return {'wait', pause} end
for i = 1, #KEYS / 2 do
  local begun, holders = KEYS[2 * i - 1], KEYS[2 * i]
  local count, period, running = tonumber(ARGV[3 * i]), tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2])
  if count > 0 then
    redis.call('LPUSH', begun, string.format('%.0f', now))
    redis.call('LTRIM', begun, 0, count - 1)
    redis.call('PEXPIRE', begun, period + 1000)
  end
  if running > 0 then
    redis.call('HSET', holders, HOLDER, REPLICA)
    redis.call('PEXPIRE', holders, 604800000)
  end
end
return {'taken', 0}
"""
"""Counts ARGV[1] of replica ARGV[2] under limits: two keys each, and count, milliseconds, and how many may run.

`taken`; `wait` for so many milliseconds; `full`: so many run under this limit.
"""

HOLD: Final = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[2] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return ''
"""
"""The other replica that holds it; nothing if replica ARGV[1] does from now on: nobody did, or ARGV[2], or itself."""

LET_GO: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1"

RENEW: Final = """local stamp = redis.sha1hex(redis.call('GET', KEYS[1]) or '')
if stamp == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end return stamp"""
"""The digest of a text, which becomes ARGV[2] if it is ARGV[1]."""

PUT: Final = """local write = redis.call('INCR', KEYS[1])
redis.call('ZADD', KEYS[2], write, ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], ARGV[3])
return write"""
"""Writes row ARGV[1] as ARGV[3], used at ARGV[2], and returns the number of this write, by which others find it."""
