"""The estimate is total, the same every time, and grows with the text about as much as its parts."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.tokens import estimate

texts = st.text() | st.text('ab Z_{}":,.é中\n\t09-\\', max_size=200)


@given(texts | st.binary(max_size=300))
def test_every_text_has_a_cost_no_greater_than_its_bytes(text: str | bytes) -> None:
    size = len(text.encode(errors="replace") if isinstance(text, str) else text)
    assert size / 64 <= estimate(text) <= size


@given(texts, texts)
def test_two_texts_cost_together_about_what_they_cost_apart(one: str, other: str) -> None:
    # pieces may join or part where they meet, and only there
    assert abs(estimate(one + other) - estimate(one) - estimate(other)) <= 4
