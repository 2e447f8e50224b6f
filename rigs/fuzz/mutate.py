"""Mutations of inputs: of bytes, and of JSON values. Everything random comes from the given generator."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

LARGEST = 1 << 16
"""Bytes that a mutated input has at most; targets make larger ones on purpose."""

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 1.5, 10**20, -(10**400), 1e308, "", "a", "\u0000", "é", "🐎", "\ud800", "\udc00x"),
    *([], {}, [[]], {"": {}}, {"$ref": "#"}, {"type": "null"}, ["string", "null"], "=?base64?w7Y=?=", "x" * 300),
)
_BYTES = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b" "),
    b"\t",
)
_NUMBERS = (b"0", b"-1", b"1e400", b"-0", b"NaN", b"9" * 20, b"9" * 5000, b"1.0", b"0x10", b"1_000")


def mutated(data: bytes, words: Sequence[bytes], others: Sequence[bytes], rng: Random) -> bytes:
    """`data` after one to eight changes; `words` are inserted whole, `others` are spliced in."""
    for _ in range(1 << rng.randrange(4)):
        data = _changed(data, words, others, rng)[:LARGEST]
    return data


def _changed(data: bytes, words: Sequence[bytes], others: Sequence[bytes], rng: Random) -> bytes:
    at = rng.randint(0, len(data))
    end = min(at + rng.choice((1, 1, 2, 4, 16, 64, 1024)), len(data))
    match rng.randrange(10):
        case 0:
            return data[:at] + data[end:]
        case 1:
            return data[:end] + data[at:end] * rng.choice((1, 1, 2, 8, 64)) + data[end:]
        case 2:
            return data[:at] + bytes([rng.randrange(256)]) + data[end:]
        case 3:
            return data[:at] + rng.choice(_BYTES) + data[at:]
        case 4:
            return data[:at] + rng.choice(_NUMBERS) + data[end:]
        case 5:
            other = rng.choice(others) if others else data
            start = rng.randint(0, len(other))
            return data[:at] + other[start : start + rng.choice((1, 8, 64, 4096))] + data[end:]
        case 6:
            lines = data.split(b"\n")
            rng.shuffle(lines) if rng.random() < 0.2 else lines.insert(rng.randint(0, len(lines)), rng.choice(lines))
            return b"\n".join(lines)
        case 7:
            there = rng.randint(0, len(data))
            return data[: min(at, there)] + data[max(at, there) :]
        case _:
            word = rng.choice(words) if words else rng.choice(_BYTES)
            return data[:at] + word + data[rng.choice((at, end)) :]


def mutated_json(value: Any, keys: Sequence[str], rng: Random) -> Any:
    """`value` with one to four changes somewhere; members are added under `keys`."""
    for _ in range(1 << rng.randrange(3)):
        value = _changed_json(value, keys, rng)
    return value


def _changed_json(value: Any, keys: Sequence[str], rng: Random) -> Any:
    roll = rng.random()
    if isinstance(value, dict) and value and roll < 0.8:
        return _changed_object(value, keys, rng)
    if isinstance(value, list) and value and roll < 0.8:
        return _changed_array(value, keys, rng)
    if isinstance(value, str) and roll < 0.5:
        return mutated(value.encode("utf-8", "surrogatepass"), (), (), rng).decode("utf-8", "replace")
    if roll < 0.1:
        for _ in range(rng.choice((1, 4, 60, 400))):
            value = rng.choice(([value], {rng.choice(keys): value}))
        return value
    return rng.choice(ODD)


def _changed_object(value: dict[str, Any], keys: Sequence[str], rng: Random) -> Any:
    key = rng.choice(list(value))
    match rng.randrange(12):
        case 0:
            return {name: kept for name, kept in value.items() if name != key}
        case 1:
            return {**value, rng.choice(keys): value[key]}
        case 2:
            return {**value, rng.choice(keys): rng.choice(ODD)}
        case 3:
            return {key if name == key else rng.choice(keys) + name: kept for name, kept in value.items()}
    return {**value, key: _changed_json(value[key], keys, rng)}


def _changed_array(value: list[Any], keys: Sequence[str], rng: Random) -> Any:
    at = rng.randrange(len(value))
    match rng.randrange(6):
        case 0:
            return value[:at] + value[at + 1 :]
        case 1:
            return [*value, value[at]]
    return [*value[:at], _changed_json(value[at], keys, rng), *value[at + 1 :]]


def json_bytes(value: Any) -> bytes:
    """Compact JSON; surrogates stay escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


def pieces(data: bytes, rng: Random) -> list[bytes]:
    """`data` cut anywhere: into single bytes, into equal parts, or at random places. Empty pieces occur."""
    match rng.randrange(4):
        case 0 if len(data) <= 4096:
            return [data[at : at + 1] for at in range(len(data))]
        case 1:
            size = rng.choice((1, 2, 3, 7, 64, 4096)) if len(data) <= 4096 else rng.choice((64, 4096))
            return [data[at : at + size] for at in range(0, len(data), size)]
        case 2:
            return [data]
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randrange(12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
