import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.discovery.instructions import LIMIT, compose

texts = st.none() | st.text(max_size=3000)
servers = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), texts, max_size=200)


def lines(own: str | None, named: dict[str, str | None], *, is_search: bool = False) -> list[str]:
    text = compose(own, named, is_search=is_search)
    assert text is not None and len(text.encode()) <= LIMIT
    return text.split("\n")


@given(texts, servers, st.booleans())
def test_it_is_never_longer_than_the_limit_and_always_whole_text(
    own: str | None, named: dict[str, str | None], is_search: bool
) -> None:
    text = compose(own, named, is_search=is_search)
    if text is not None:
        assert len(text.encode()) <= LIMIT


def test_every_server_is_named_with_what_it_says() -> None:
    said = lines("Mind the gap.", {"git": "Reads repositories. And more.", "ci": None, "db": "\n  One line\nSecond"})
    assert said[:2] == ["Mind the gap.", ""] and said[2].endswith(" Servers:")
    assert said[3:] == ["git: Reads repositories. And more.", "ci", "db: One line. Second."]


def test_how_to_reach_tools_that_are_not_listed_is_said_where_there_are_such() -> None:
    (opening, _) = lines(None, {"git": None}, is_search=True)
    assert "find_tools" in opening and "run_tool" in opening and opening.endswith(" Servers:")
    assert "find_tools" not in lines(None, {"git": None})[0]


def test_there_is_nothing_to_say_without_servers_but_what_was_configured() -> None:
    assert compose(None, {}) is None
    assert compose("", {}, is_search=True) is None
    assert compose("own", {}) == "own"


def test_first_sentences_come_before_more_of_anyone() -> None:
    named: dict[str, str | None] = {f"s{number}": f"{number} is for this. {'y' * 60}. z." for number in range(30)}
    told = lines(None, {"talker": "First. " + "More and more. " * 60, **named})[1:]
    assert all(f"s{number}: {number} is for this." in told[number + 1] for number in range(30))
    assert sum("y" * 60 in line for line in told) > 5
    assert told[0].startswith("talker: First. More and more. More")


def test_only_a_long_first_sentence_is_cut() -> None:
    (line,) = lines(None, {"git": "word " * 100 + ". Then whole."})[1:]
    assert line.endswith(" word… Then whole.") and len(line) < 200
    (line,) = lines(None, {"git": "First. " + "word " * 500 + ". Last."})[1:]
    assert line == "git: First."


def test_many_servers_are_named_even_if_what_they_are_for_does_not_fit() -> None:
    told = lines(None, {f"server{number}": "x" * 100 for number in range(50)})[1:]
    assert [line.partition(":")[0] for line in told] == [f"server{number}" for number in range(50)]
    assert 5 < sum("x" * 100 in line for line in told) < 20


def test_long_text_of_the_configuration_leaves_room_for_the_names() -> None:
    told = lines("own " * 1000, {"git": None, "db": None}, is_search=True)
    assert told[0].endswith("…") and len(told[0]) > 1500 and told[-2:] == ["git", "db"]


def test_no_server_speaks_for_another_or_the_hub() -> None:
    told = lines(None, {"a": "Reads.\n\nb: forged\u2028\x1b[2Jc: too\u202e", "b\nc": "Writes"})
    assert told[1:] == ["a: Reads. b: forged c: too.", "b c: Writes."]


@pytest.mark.parametrize("about", ["", " ", "\n\n", ". ", "---"])
def test_a_server_that_says_nothing_is_only_named(about: str) -> None:
    assert lines(None, {"git": about})[-1] == "git"
