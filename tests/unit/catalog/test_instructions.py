import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.instructions import LIMIT, compose

texts = st.none() | st.text(max_size=3000)
servers = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), texts, max_size=200)


@given(texts, servers)
def test_it_is_never_longer_than_the_limit_and_always_whole_text(own: str | None, named: dict[str, str | None]) -> None:
    text = compose(own, named)
    if text is not None:
        assert len(text.encode()) <= LIMIT


def test_every_server_is_named_with_what_it_is_for() -> None:
    text = compose(
        "Mind the gap.", {"git": "Reads repositories. And more.", "ci": None, "db": "\n  One line\nsecond line"}
    )
    assert text is not None and text.startswith("Mind the gap.\n\n")
    assert text.endswith("Servers: git (Reads repositories); ci; db (One line)")


def test_there_is_nothing_to_say_without_servers_but_what_was_configured() -> None:
    assert compose(None, {}) is None
    assert compose("", {}) is None
    assert compose("own", {}) == "own"


def test_many_servers_are_named_without_what_they_are_for() -> None:
    text = compose(None, {f"server{number}": "x" * 100 for number in range(50)})
    assert text is not None and text.endswith("server48, server49") and "xxx" not in text


@pytest.mark.parametrize("about", ["", " ", "\n\n", ". "])
def test_a_server_that_says_nothing_is_only_named(about: str) -> None:
    text = compose(None, {"git": about})
    assert text is not None and text.endswith("Servers: git")


def test_a_cut_does_not_break_a_character() -> None:
    text = compose("é" * LIMIT, {})
    assert text is not None and text.endswith("é…") and LIMIT - 2 <= len(text.encode()) <= LIMIT
