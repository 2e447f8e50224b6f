"""How deep JSON is nested, against a recursive count of what was encoded."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.protocol.jsonrpc import unparsed
from mcp_hub.protocol.jsonrpc.unparsed import is_deeper

text = st.text(alphabet='[]{}"\\,:a\u20ac', max_size=6)
values = st.recursive(
    st.none() | st.integers() | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=20,
)


def levels(value: Any) -> int:
    if isinstance(value, list):
        return 1 + max(map(levels, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 0


@given(values, st.sampled_from([1, 2, 3, 7, 1 << 20]))
def test_depth_is_that_of_the_value_wherever_the_text_is_cut_up(value: Any, window: int) -> None:
    encoded = json.dumps(value, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unparsed, "_WINDOW", window)
        assert [is_deeper(encoded, most) for most in range(1, 12)] == [levels(value) > most for most in range(1, 12)]


def test_a_hundred_thousand_levels_and_a_million_brackets_side_by_side_are_no_matter() -> None:
    assert is_deeper(b"[" * 100_000 + b"]" * 100_000, 99_999)
    assert not is_deeper(b"[" * 100_000 + b"]" * 100_000, 100_000)
    assert not is_deeper(b"[" + b"[],{}," * 1_000_000 + b"[]]", 2)
