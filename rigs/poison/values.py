"""What is written under the keys of the shared store: values of every type, and what no hub would write in each."""

import json
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import msgpack, structs

from mcp_hub.stores.history.base import Batch

Client = Any
"""`redis.Redis`, whose annotations know neither its bytes nor its unions."""
Write = Callable[[Client, str], object]
"""Writes one poison under a key."""

NASTY: Final[dict[str, bytes]] = {
    "nothing": b"",
    "a word": b"abc",
    "a negative number": b"-1",
    "zero": b"0",
    "a fraction": b"1.5",
    "2^63": b"9223372036854775808",
    "400 digits": b"9" * 400,
    "nan": b"nan",
    "infinity": b"inf",
    "a float beyond all": b"1e999",
    "invalid UTF-8": b"\xff\xfe\x80",
    "NUL": b"\x00",
    "half a JSON": b'{"a":',
    "another JSON": b'[null, {"a": 1e400}]',
    "JSON of 5000 levels": b"[" * 5000 + b"]" * 5000,
    "msgpack of 5000 levels": b"\x91" * 5000,
    "msgpack of another shape": b"\x93\x01\x02\x03",
    "msgpack with NaN": b"\x93\xa1p\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00\xc4\x02{}",
    "1 MiB": b"x" * (1 << 20),
    "an escape sequence": b"\x1b[31m\r\n\x1b]0;x\x07",
    "a key of the hub": b"{replicas}",
    "a path": b"../../etc/passwd",
    "parts without end": b"in_x:1:99999999999",
}
ODD_TIMES: Final = {
    "nan": math.nan, "infinity": math.inf, "-infinity": -math.inf, "1e300": 1e300, "-1e300": -1e300, "-1": -1.0,
}  # fmt: skip
_SOME: Final = ("nothing", "a word", "400 digits", "invalid UTF-8", "nan", "JSON of 5000 levels", "1 MiB")
_LAST_ID: Final = "18446744073709551615-18446744073709551615"


@dataclass(frozen=True)
class Poison:
    """`kind` is that of the key (`kind_of`)."""

    kind: str
    name: str
    write: Write


KINDS: Final = {
    "replicas": "hash", "every": "zset", "ended": "zset", "secret": "string", "sessions": "hash",
    "sessions:x": "zset", "sessions:c": "stream", "st_": "hash", "st_:e": "stream", "st_:p": "hash", "st_:m": "list",
    "in_:r": "set", "in_:m": "set", "in_:w": "stream", "p:": "zset", "k:": "hash", "h:": "string",
    "d:": "zset", "d::s": "hash", "d:*": "string",
    "history": "hash", "history:h": "hash", "history:t": "hash", "history:r": "hash", "history:l": "list",
}  # fmt: skip
"""The kinds of keys (docs/shared-store.md, "Keys") and the type of each."""


def kind_of(key: str) -> str:
    """The kind of a key without its prefix; empty for a key that is not the hub's."""
    tag, _, suffix = key.removeprefix("{").partition("}")
    for head in ("st_", "in_", "p:", "k:", "h:", "d:"):
        if tag.startswith(head):
            kind = head + suffix
            return "d:*" if kind not in KINDS and head == "d:" and ":bad" not in kind else kind
    return tag + suffix


def poisons() -> Iterator[Poison]:
    """Every poison for every kind of key."""
    for kind, type_ in KINDS.items():
        for name, write in _of_other_types(type_):
            yield Poison(kind, name, write)
        for name, write in _CONTENTS[type_]():
            yield Poison(kind, name, write)
        for name, write in _OF_HISTORY.get(kind, lambda: iter(()))():
            yield Poison(kind, name, write)


def _of_other_types(type_: str) -> Iterator[tuple[str, Write]]:
    writes: dict[str, Write] = {
        "string": lambda server, key: server.set(key, "x"),
        "list": lambda server, key: server.rpush(key, "x", "y"),
        "set": lambda server, key: server.sadd(key, "x", "y"),
        "zset": lambda server, key: server.zadd(key, {"x": 1.0}),
        "hash": lambda server, key: server.hset(key, "x", "y"),
        "stream": lambda server, key: server.xadd(key, {"x": "y"}),
    }
    for other, write in writes.items():
        if other != type_:
            yield f"a {other} in its place", _replacing(write)
    yield "nothing in its place", lambda server, key: server.delete(key)


def _replacing(write: Write) -> Write:
    def replaced(server: Client, key: str) -> None:
        server.delete(key)
        write(server, key)

    return replaced


def _given(value: Any, write: Callable[[Client, str, Any], object]) -> Write:
    return lambda server, key: write(server, key, value)


def _hashes() -> Iterator[tuple[str, Write]]:
    for name, value in NASTY.items():
        yield f"each field is {name}", _each_field(value)
        yield f"a field named {name}", _given(value, lambda server, key, value: server.hset(key, value, value))
    yield "each second field is missing", _without_half
    yield "5000 fields", lambda server, key: server.hset(key, mapping={f"f{number}": "x" for number in range(5000)})


def _each_field(value: bytes) -> Write:
    def write(server: Client, key: str) -> None:
        for field in list(server.hkeys(key))[:50]:
            server.hset(key, field, value)

    return write


def _without_half(server: Client, key: str) -> None:
    for field in sorted(server.hkeys(key))[:50:2]:
        server.hdel(key, field)


def _sets() -> Iterator[tuple[str, Write]]:
    for name, value in NASTY.items():
        yield f"a member that is {name}", _given(value, lambda server, key, value: server.sadd(key, value))
    yield "5000 members", lambda server, key: server.sadd(key, *(f"st_{number}" for number in range(5000)))


def _sorted_sets() -> Iterator[tuple[str, Write]]:
    for name, value in NASTY.items():
        yield f"a member that is {name}", _given(value, lambda server, key, value: server.zadd(key, {value: 1.0}))
    for score in (float("inf"), float("-inf"), -1.0, 1e300):
        yield f"a score of {score:g}", _given(score, lambda server, key, score: server.zadd(key, {"x" * 20: score}))
    forged = "0" * 16 + " " + "0" * 32 + " sessions"
    yield "the place of a key that is not a stream", lambda server, key: server.zadd(key, {forged: 0.0})
    yield "5000 members", lambda server, key: server.zadd(key, {f"m{number}": number for number in range(5000)})


def _lists() -> Iterator[tuple[str, Write]]:
    for name, value in NASTY.items():
        yield f"an item that is {name}", _given(value, lambda server, key, value: server.rpush(key, value))
        yield f"input that is {name}", _given(value, lambda server, key, value: server.rpush(key, b"input\n" + value))
    yield "5000 items", lambda server, key: server.rpush(key, *["input\n{}"] * 5000)


def _streams() -> Iterator[tuple[str, Write]]:
    for name in _SOME:
        value = NASTY[name]
        yield f"an entry with {name}", _given(value, lambda server, key, value: server.xadd(key, {value: value}))
        for at, field in enumerate("fnpd"):
            entry = {"f": "1", "n": "1", "p": "", "d": "x"} | {field: value}
            yield (
                f"a chunk whose field {at} is {name}",
                _given(entry, lambda server, key, entry: server.xadd(key, entry)),
            )
    yield "the last id of all", lambda server, key: server.xadd(key, {"x": "y"}, id=_LAST_ID)
    yield "no entries", lambda server, key: server.xtrim(key, 0, approximate=False)


def _strings() -> Iterator[tuple[str, Write]]:
    for name, value in NASTY.items():
        yield f"a text that is {name}", _given(value, lambda server, key, value: server.set(key, value))


def _known_batches() -> Iterator[tuple[str, Write]]:
    """What is known of each batch of past calls: times, calls, bytes, places of texts."""
    for name, time in ODD_TIMES.items():
        yield f"a batch at {name}", _each_field(msgpack.encode([time, time, 1, 0, []]))
    for number in (-1, 2**63 - 1):
        yield f"{number} calls", _each_field(msgpack.encode([1.0, 9e9, number, number, [number]]))
    for field in (b"in_x", b"in_x -1", b"in_x " + b"9" * 5000, b" 0", b"in_x 0 0"):
        sound = msgpack.encode([1.0, 9e9, 1, 0, [0]])
        yield f"the field {field[:9]!r}", _given((field, sound), lambda server, key, pair: server.hset(key, *pair))


def _columns() -> Iterator[tuple[str, Write]]:
    """Batches of one past call whose columns fit each other, and hold what no hub would write."""
    for name, time in ODD_TIMES.items():
        column = array("d", [time]).tobytes()
        yield f"an ending at {name}", _each_field(_batch(ended=column))
        yield f"a duration of {name}", _each_field(_batch(took=column, waited=column))
    changes: dict[str, dict[str, Any]] = {
        "no group": {"groups": ""},
        "groups that are not JSON": {"groups": "{\n" * 5000},
        "a group of texts that nobody sees": {"groups": json.dumps(["\x1b[2J\u202e"] * 8)},
        "a note of another call": {"notes": {7: ("x", "y"), 2**63 - 1: ("x", "y")}},
        "a number of 2^63": {"base": 2**63},
        "an id that is none": {"ids": "\x1b[31m"},
        "another hub": {"hub": "../../x" * 1000},
        "every flag": {"flags": b"\xff"},
        "the largest sizes": {"sizes": b"\xff" * 8},
    }
    for name, change in changes.items():
        yield name, _each_field(_batch(**change))


def _batch(**change: Any) -> bytes:
    group = json.dumps(["jobs", "run_job", "run_job", "tools/call", "nobody", "c", "completed", "full", ""])
    one = array("d", [1.8e9]).tobytes()
    batch = Batch("in_x", 0, group, b"\0\0", "st_x", one, one, one, b"\0" * 8, b"\0")
    return msgpack.encode(structs.replace(batch, **change))


def _ends_of_replicas() -> Iterator[tuple[str, Write]]:
    for name, time in ODD_TIMES.items():
        yield f"a replica that wrote at {name}", _given(time, lambda server, key, time: server.hset(key, "in_x", time))


def _losses() -> Iterator[tuple[str, Write]]:
    for kind in ("killed", "dropped", "unwritten", "damaged", "cleared", "another"):
        for at in ("1e300", "-1e300", "-1", "1e400"):
            loss = f'{{"kind":"{kind}","at":{at},"hub":"\\u001b[2J","count":-1,"reason":"{"x" * 5000}"}}'
            yield (
                f"calls that are lost at {at}, {kind}",
                _given(loss, lambda server, key, loss: server.lpush(key, loss)),
            )


_OF_HISTORY: Final[dict[str, Callable[[], Iterator[tuple[str, Write]]]]] = {
    "history": _known_batches,
    "history:h": _columns,
    "history:r": _ends_of_replicas,
    "history:l": _losses,
}
_CONTENTS: Final[dict[str, Callable[[], Iterator[tuple[str, Write]]]]] = {
    "hash": _hashes,
    "set": _sets,
    "zset": _sorted_sets,
    "list": _lists,
    "stream": _streams,
    "string": _strings,
}
EVERY: Final[Sequence[Poison]] = tuple(poisons())
