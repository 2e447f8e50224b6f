"""The Bearer challenge that a server refuses with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.upstreams.auth.challenges import challenge_of, composed


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('Bearer scope="a b", error="insufficient_scope"', {"scope": "a b", "error": "insufficient_scope"}),
        ("bearer error=invalid_token", {"error": "invalid_token"}),
        ('Basic realm="x", Bearer resource_metadata="https://a.b/c"', {"resource_metadata": "https://a.b/c"}),
        (r'Bearer error_description="say \"no\", twice"', {"error_description": 'say "no", twice'}),
        ('Bearer scope="first", scope="second"', {"scope": "first"}),
        ("Bearer", {}),
        ("", {}),
        ('DPoP scope="x"', {}),
        ('Bearer scope="never closed', {}),
    ],
)
def test_parameters_are_read(header: str, found: dict[str, str]) -> None:
    assert challenge_of(header) == found


@given(st.text(max_size=300))
def test_anything_can_be_read(header: str) -> None:
    challenge_of("Bearer " + header)


@given(st.text(max_size=100))
def test_what_is_composed_is_one_challenge_whatever_a_value_holds(value: str) -> None:
    found = challenge_of(composed(scope=value, error="insufficient_scope"))
    assert found["error"] == "insufficient_scope" and set(found) <= {"scope", "error"}


def test_a_value_of_which_nothing_can_be_held_is_left_out() -> None:
    assert composed(scope="é", error="x") == 'Bearer error="x"' and composed(scope="é") == "Bearer"


def test_a_long_header_is_read_in_linear_time() -> None:
    for header in ("Bearer " + "a=b," * 100_000, 'Bearer x="' + "\\" * 100_000, "Bearer " + "a" * 100_000):
        challenge_of(header)
