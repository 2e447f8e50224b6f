"""Parses durations, sizes and flags. No message repeats the value, which may be secret."""

import math
import re
from decimal import Decimal

LONGEST = 366 * 86400.0  # more is a slip of the unit, such as milliseconds written as seconds
_LARGEST = 1 << 40  # 1 TiB: as above
_LONGEST_TEXT = 64  # bounds the arithmetic on hostile input

_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_PARTS = re.compile(rf"(?:{_PART.pattern})+")
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_WANT_DURATION = 'expected a duration such as "30m", "2s", "250ms" or "1h30m", or a number of seconds'
_WANT_SIZE = 'expected a size such as "32MiB" or "1MB", or a number of bytes'
_FLAGS = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}


def parse_duration(value: object) -> float:
    """Seconds of `"30m"`, `"1h30m"`, `"250ms"`, `"2.5"` or a number; 0 to `LONGEST`. Raises `ValueError`."""
    seconds = _duration_of(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(_WANT_DURATION)
    if seconds > LONGEST:
        raise ValueError("longer than the limit of 366 days")
    return seconds


def _duration_of(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_WANT_DURATION)
    if isinstance(value, int):
        return float(max(min(value, 10**12), -1))  # an int beyond float's range must not overflow
    if isinstance(value, float):
        return value
    text = value.strip()
    if len(text) > _LONGEST_TEXT:
        raise ValueError(_WANT_DURATION)
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if not _PARTS.fullmatch(text):
        raise ValueError(_WANT_DURATION)
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def parse_size(value: object) -> int:
    """Bytes of `"32MiB"`, `"1MB"`, `"4096"` or an int; 1 to 1 TiB. Raises `ValueError`."""
    size = _size_of(value)
    if size < 1:
        raise ValueError(_WANT_SIZE)
    if size > _LARGEST:
        raise ValueError("larger than the limit of 1 TiB")
    return size


def _size_of(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError(_WANT_SIZE)
    match = _SIZE.fullmatch(value.strip())
    if match is None or match[2].lower() not in _BYTES:
        raise ValueError(_WANT_SIZE)
    return int(Decimal(match[1]) * _BYTES[match[2].lower()])


def as_flag(value: object) -> bool | None:
    """`true`, `"yes"`, `"0"`, … as a bool, else None."""
    if isinstance(value, bool):
        return value
    return _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
