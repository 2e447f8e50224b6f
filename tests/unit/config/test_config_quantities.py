"""Durations, sizes and flags as people write them."""

import pytest

from mcp_hub.config.schema.fields import LONGEST, as_flag, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800.0),
        ("2s", 2.0),
        ("250ms", 0.25),
        ("6h", 21600.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        (" 7 ", 7.0),
        (3, 3.0),
        (0.5, 0.5),
        (0, 0.0),
    ],
)
def test_duration_is_read_as_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "30 minutes",
        "1h 30m",
        "-1s",
        -1,
        -(10**400),
        True,
        None,
        [],
        float("nan"),
        float("inf"),
        "9" * 65,
        "٣s",
    ],
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", [LONGEST + 1, "367d", 10**400, "9" * 60 + "h"])
def test_duration_beyond_the_limit_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="longer than the limit of 366 days"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("32MiB", 32 << 20),
        ("1MB", 10**6),
        ("4 kb", 4000),
        ("1.5KiB", 1536),
        ("2GiB", 2 << 30),
        ("12B", 12),
        ("7", 7),
        (9, 9),
    ],
)
def test_size_is_read_as_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "1 MiBs", "-1", 0, -5, "0.1B", True, 1.5, None])
def test_what_is_no_size_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_size(text)


def test_size_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="larger than the limit of 1 TiB"):
        parse_size("1025GiB")


@pytest.mark.parametrize(
    ("value", "flag"),
    [(True, True), ("Yes", True), ("off", False), ("0", False), ("maybe", None), (3, None), (None, None)],
)
def test_flag_is_read_in_any_usual_spelling(value: object, flag: bool | None) -> None:
    assert as_flag(value) is flag
