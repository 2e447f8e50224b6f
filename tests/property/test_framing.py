import sys
from collections.abc import Sequence
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.jsonrpc.framing import Framer, TooLong

LIMIT = 12
lines = st.text("ab{} \r\t", max_size=3 * LIMIT).map(str.encode)
streams = st.lists(lines, max_size=8).map(b"\n".join)


def framed(chunks: Sequence[bytes], limit: int) -> list[bytes | TooLong]:
    framer = Framer(limit)
    return [frame for chunk in chunks for frame in framer.feed(chunk)] + framer.finish()


@st.composite
def chunked(draw: st.DrawFn, streams: st.SearchStrategy[bytes] = streams) -> tuple[bytes, list[bytes]]:
    """A stream, and the same stream in pieces."""
    stream = draw(streams)
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(chunked())
def test_frames_are_the_lines_that_are_not_blank_however_the_bytes_arrive(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    assert framed(chunks, 1000) == [line for line in stream.split(b"\n") if line.strip()]


@given(chunked())
def test_a_line_over_the_limit_is_one_typed_error_in_its_place(case: tuple[bytes, list[bytes]]) -> None:
    stream, chunks = case
    frames = framed(chunks, LIMIT)
    # a blank line that is too long is an error as well: nobody waits for its end to find out
    lines = [line for line in stream.split(b"\n") if line.strip() or len(line) > LIMIT]
    assert len(frames) == len(lines)
    for frame, line in zip(frames, lines, strict=True):
        if isinstance(frame, TooLong):
            assert LIMIT < frame.size <= len(line)
            assert frame.head and line.startswith(frame.head)
        else:
            assert frame == line and len(line) <= LIMIT


@given(st.integers(1, 30), st.integers(1, 7))
def test_the_limit_is_reported_as_soon_as_it_is_known(limit: int, step: int) -> None:
    framer, fed = Framer(limit), 0
    while not (frames := framer.feed(b"x" * step)):
        fed += step
        assert fed <= limit
    assert frames == [TooLong(b"x" * (fed + step), fed + step)]
    assert framer.feed(b"x" * 1000) == []
    assert framer.feed(b"y\nz\n") == [b"z"]


def work(chunks: Sequence[bytes], limit: int) -> int:
    """What framing costs: calls made, and bytes that the called method of a byte string may have to look at."""
    cost = fed = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal cost
        owner = getattr(arg, "__self__", None)
        if event == "call":
            cost += 1
        elif event == "c_call" and getattr(arg, "__name__", "") == "join":
            cost += fed  # at most everything that ever came
        elif event == "c_call":
            cost += 1 + (len(owner) if isinstance(owner, bytes | bytearray | memoryview) else 0)

    framer = Framer(limit)
    for chunk in chunks:
        fed += len(chunk)
        sys.setprofile(count)
        try:
            framer.feed(chunk)
        finally:
            sys.setprofile(None)
    return cost


@pytest.mark.parametrize("ending", [b"\n", b""], ids=["one line", "no newline"])
@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["within the limit", "over the limit"])
@pytest.mark.parametrize("size", [1, 64])
def test_the_cost_is_linear_in_bytes(size: int, limit: int, ending: bytes) -> None:
    once, eight_times = (work([b"x" * size] * count + [ending], limit) for count in (2_000, 16_000))
    assert eight_times <= 9 * once


def test_what_was_skipped_is_not_kept() -> None:
    framer = Framer(10)
    for _ in range(1000):
        framer.feed(b"x" * 1000)
    (kept,) = framer.feed(b"\n" + b"y" * 1_000_000)
    assert isinstance(kept, TooLong)
    assert len(kept.head) <= 4096
    assert framer.finish() == []
