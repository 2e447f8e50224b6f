"""The events of a model's text are the same for every split of it, and text of others never becomes a call."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.formats.prompted import FORMATS, result_text
from mcp_hub.formats.records import OutputEnd
from tests.examples import some
from tests.unit.formats.prompted_texts import CASES, characters, parsed, short

formats = st.sampled_from(list(FORMATS))
PARTS = [
    *(
        '"name": ',
        '"now"',
        '"get_weather"',
        '"nope"',
        '"arguments": ',
        '"parameters": ',
        '{"name": "now", "arguments": ',
    ),
    *("\n```\n", "\n", " ", *'{ } [ ] ( ) : , ; " \' """ \\ = # ` ``` ~~~'.split()),
    *("json\n", *"now get_weather nope city city= 1 - null \xe9 \U0001f5fc \ud800 a < > </s>".split()),
    *("<parameter=city>", "<parameter=days>", "</parameter>", "</function>", "<arg_key>", "</arg_key>", "<arg_value>"),
    *("</arg_value>", "<|tool_call_argument_begin|>", "<｜tool▁sep｜>", "[ARGS]", "[CALL_ID]", "function"),
]


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, str]:
    """A format, and a text of its tags, of what stands between them, and of pieces of both."""
    format = draw(formats)
    one = FORMATS[format]
    tags = [*one.begins, *one.ends, *one.ignored, *one.around, *one.thinking, *(text for text, _ in CASES[format])]
    parts = st.one_of(st.sampled_from(tags), st.sampled_from(PARTS))
    cut = st.builds(lambda part, end: part[: end % (len(part) + 1)], parts, st.integers(0, 200))
    return format, "".join(draw(st.lists(st.one_of(parts, parts, cut), max_size=14)))


@st.composite
def grouped(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """The same, and its pieces."""
    format, text = draw(texts())
    places = sorted(draw(st.sets(st.integers(0, len(text)), max_size=20)))
    return format, text, list(pieces(text, places))


def pieces(text: str, places: list[int]) -> Iterator[str]:
    return (text[start:end] for start, end in pairwise([0, *places, len(text)]))


@pytest.mark.parametrize("format", FORMATS)
def test_every_split_point_gives_the_same_events(format: str) -> None:
    for number, (text, _) in enumerate(CASES[format]):
        events = parsed(format, text)
        for place in some(range(min(len(text), 400)), number):
            assert parsed(format, text, partial(pieces, places=[place])) == events, (text, place)


@given(grouped())
def test_every_grouping_gives_the_same_events(case: tuple[str, str, list[str]]) -> None:
    format, text, groups = case
    events = parsed(format, text)
    assert parsed(format, text, characters) == events
    assert parsed(format, text, lambda _: groups) == events


@given(texts())
def test_whatever_the_text_is_every_call_ends_and_the_output_too(case: tuple[str, str]) -> None:
    events = parsed(*case)
    short(events)  # which sees that every call that begins ends
    assert isinstance(events[-1], OutputEnd) and not any(isinstance(event, OutputEnd) for event in events[:-1])


@given(texts(), formats)
def test_no_result_becomes_a_call(case: tuple[str, str], format: str) -> None:
    shown = result_text(FORMATS[format], "now", {"content": [{"type": "text", "text": case[1]}]})
    assert not [event for event in short(parsed(format, shown)) if isinstance(event, tuple)]
