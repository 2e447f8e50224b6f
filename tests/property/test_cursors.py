import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.sse import Cursor
from mcp_hub.types import CallId

STREAM = CallId("st_0123456789ABCDEFGHJKMNPQRS")
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
streams = st.text(CROCKFORD, min_size=26, max_size=26).map(lambda text: CallId(f"st_{text}"))
places = st.builds(Cursor, streams, st.integers(0, 10**15 - 1))


@given(places)
def test_a_place_survives_being_written(place: Cursor) -> None:
    assert Cursor.parse(str(place)) == place


@given(places, places)
def test_different_places_are_written_differently(one: Cursor, other: Cursor) -> None:
    assert (str(one) == str(other)) == (one == other)


@given(st.text() | st.text(f"st_:{CROCKFORD}\n 0123456789", max_size=48))
def test_any_text_is_a_place_written_the_one_way_or_refused(text: str) -> None:
    try:
        place = Cursor.parse(text)
    except ValueError:
        return
    assert str(place) == text


@given(places, st.data())
def test_a_place_with_one_character_more_less_or_other_is_no_other_spelling_of_it(
    place: Cursor, data: st.DataObject
) -> None:
    text = str(place)
    at = data.draw(st.integers(0, len(text)))
    changed = text[:at] + data.draw(st.text(max_size=1)) + text[at + data.draw(st.integers(0, 1)) :]
    try:
        assert changed == text or Cursor.parse(changed) != place
    except ValueError:
        pass


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", STREAM, f"{STREAM}:", f"{STREAM}:-1", f"{STREAM}:+1", f"{STREAM}:01", f"{STREAM}:1 "),
        f" {STREAM}:1",
        *(f"{STREAM}:1\n", f"{STREAM}:1.0", f"{STREAM}:1e3", f"{STREAM}:٣", f"{STREAM}:²", f"{STREAM}:0x1"),
        *(f"{STREAM}:{10**15}", f"{STREAM}:{'9' * 5000}", f"{STREAM[:-1]}:1", f"{STREAM}0:1", STREAM.lower() + ":1"),
        *(f"{STREAM[3:]}:1", f"{STREAM[:-1]}U:1", f"{STREAM}:1:1", "a" * 100_000),
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_what_only_looks_like_a_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a place in a stream") as refused:
        Cursor.parse(text)
    assert len(str(refused.value)) < 200
