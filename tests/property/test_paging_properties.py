"""Whatever a text is and however it is read: no byte of it is lost or told twice."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.calls.results.paging import MARGIN, grep, page
from mcp_hub.calls.results.truncate import head_within, tail_within
from tests.examples import examples
from tests.unit.calls.long_results import ESTIMATES

PIECES = st.sampled_from(
    ["word ", "\n", "\r\n", "🐎", "e\u0301", "\u200d", "é", "\0", " " * 40, "x" * 300, "\u2028", "漢"]
)
TEXTS = st.tuples(st.lists(PIECES | st.text(max_size=3), max_size=30), st.integers(1, 40)).map(
    lambda drawn: "".join(drawn[0]).encode("utf-8", "replace").decode() * drawn[1]
)
ANY_ESTIMATE = st.sampled_from(ESTIMATES)


@settings(max_examples=examples(300))
@given(
    text=TEXTS,
    tokens=st.integers(4, 2000),
    most=st.none() | st.integers(1, 500),
    window=st.integers(8, 5000),
    estimate=ANY_ESTIMATE,
)
def test_pages_one_after_the_other_are_the_text(
    text: str, tokens: int, most: int | None, window: int, estimate: Callable[[str], int]
) -> None:
    body, at, parts = text.encode(), 0, []
    while at < len(body):
        first = max(at - MARGIN, 0)
        part, start, end = page(body[first : at + window], first, at, most, tokens, estimate)
        assert start == at < end and estimate(part) <= tokens
        assert most is None or len(part.encode()) <= most or len(part) == 1
        assert body[start:end].decode() == part
        parts.append(part)
        at = end
    assert "".join(parts) == text


@settings(max_examples=examples(200))
@given(text=TEXTS, offset=st.integers(0, 3000))
def test_a_page_from_any_offset_begins_with_the_character_that_is_there(text: str, offset: int) -> None:
    body = text.encode()
    offset = min(offset, len(body))
    first = max(offset - MARGIN, 0)
    part, start, end = page(body[first:], first, offset, None, 10**6, len)
    assert offset - MARGIN <= start <= offset and body[start:end].decode() == part


@settings(max_examples=examples(300))
@given(text=TEXTS, tokens=st.integers(0, 2000), estimate=ANY_ESTIMATE)
def test_what_is_said_to_fit_fits(text: str, tokens: int, estimate: Callable[[str], int]) -> None:
    head, tail = head_within(text, tokens, estimate), tail_within(text, tokens, estimate)
    assert estimate(text[:head]) <= tokens and estimate(text[len(text) - tail :]) <= tokens
    assert min(head, tail) >= min(len(text), tokens // 4)


@settings(max_examples=examples(200))
@given(
    text=TEXTS,
    most=st.integers(1, 20),
    tokens=st.integers(128, 3000),
    pattern=st.sampled_from(["d", "é|x", "^", "[^a]$"]),
)
def test_a_search_in_steps_finds_each_line_that_matches_once(text: str, most: int, tokens: int, pattern: str) -> None:
    lines = text.split("\n")
    matches: dict[str, Callable[[str], bool]] = {
        "d": lambda line: "d" in line,
        "é|x": lambda line: "é" in line or "x" in line,
        "^": lambda line: True,
        "[^a]$": lambda line: line != "" and line[-1] != "a",
    }
    wanted = matches[pattern]
    expected = [number for number, line in enumerate(lines, 1) if wanted(line)]
    if lines[-1] == "" and expected and expected[-1] == len(lines):
        expected.pop()  # behind the last line break no line begins
    at: int | None = 0
    seen: list[int] = []
    while at is not None:
        found, following, _ = grep(text.encode(), pattern, at, most, tokens, ESTIMATES[1], lambda: False)
        assert sum(len(line.encode()) + 1 for line in found) <= tokens
        assert following is None or following > at or found
        seen += [int(line.split(":")[0]) for line in found]
        at = following
    assert list(dict.fromkeys(seen)) == expected
    assert len(seen) == len(expected) or any(len(line.encode()) > 64 for line in lines)
