"""Texts and values of scripts, whatever they are."""

import ast
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.code.source import cleaned, lines_around, names_in, rewritten
from mcp_hub.code.steps import CodeError
from mcp_hub.code.values import checked_arguments, encoded_output, result_of, value_of

LINES = st.sampled_from(
    [
        *(
            "x = 1",
            "if x:",
            "    y = e.tool",
            "\ty = e.code",
            "```python",
            "```",
            "~~~",
            "print(f'é {e.tool}')",
            "",
            "  ",
        ),
        *(
            "try:",
            "    await f(a=type(e).__name__)",
            "except ToolError as e:",
            "    e.arguments['é'].code",
            "'''",
            "# ```",
        ),
    ]
)
TEXTS = st.lists(LINES, max_size=12).map("\n".join) | st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(TEXTS)
def test_text_is_a_script_or_refused(text: str) -> None:
    try:
        code = cleaned(text)
    except CodeError as error:
        assert error.kind == "syntax"
        return
    assert code.strip()
    assert "\r" not in code
    names_in(code)
    lines_around(code, 1)
    result = rewritten(code, "begin()")
    assert result.count("\n") >= code.count("\n") + 1
    try:
        ast.parse(code)
    except (SyntaxError, ValueError):
        assert result == f"begin()\n{code}"
    else:
        ast.parse(result)


@given(TEXTS)
def test_script_in_a_fence_is_taken_out(text: str) -> None:
    try:
        code = cleaned(text)
        ast.parse(code)
    except (CodeError, SyntaxError, ValueError):
        return
    if "```" not in code:
        assert cleaned(f"Here you are:\n\n```python\n{code}\n```\nIt prints.").rstrip("\n") == code.rstrip("\n")


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), JSON, max_size=4))
def test_arguments_within_the_limit_are_taken_as_they_are(arguments: Mapping[str, object]) -> None:
    encoded = msgspec.json.encode(arguments)
    assert checked_arguments("f", dict(arguments), 0, len(encoded)) == encoded
    if len(encoded) > 2:
        with pytest.raises(ValueError, match="longer than"):
            checked_arguments("f", dict(arguments), len(encoded), len(encoded))


@given(JSON)
def test_value_comes_through_a_script_as_it_is(value: object) -> None:
    text = msgspec.json.encode(value)
    result = msgspec.json.encode({"content": [{"type": "text", "text": text.decode()}]})
    inside = value_of(result, "1")
    assert isinstance(inside, bytes)
    assert msgspec.json.decode(inside) == value
    outside = encoded_output(msgspec.json.decode(inside), 1 << 20)
    decoded = msgspec.json.decode(result_of(outside, lambda handle: None))
    if isinstance(value, dict):
        assert decoded["structuredContent"] == value
    elif isinstance(value, str):
        assert decoded["content"] == [{"type": "text", "text": value}]
    else:
        assert value is None or msgspec.json.decode(decoded["content"][0]["text"]) == value
