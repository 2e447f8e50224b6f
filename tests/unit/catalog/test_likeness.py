"""Words that are used alike: what the table holds, and what it changes in a search."""

import pytest

from mcp_hub.catalog.search.words import PLACE, like, load, words
from tests.unit.catalog.search_tools import ASKED, TOOLS, found, index, tool


@pytest.mark.parametrize(
    ("word", "other"),
    [("fetch", "retrieve"), ("folder", "directory"), ("delete", "erase"), ("email", "mail")],
)
def test_words_of_like_use_are_like_each_other(word: str, other: str) -> None:
    (stem,), (wanted,) = words(word, 2), words(other, 2)
    assert wanted in dict(like(stem))


def test_the_table_is_small_and_sound() -> None:
    assert PLACE.stat().st_size < 4_000_000
    numbers, names, _ = load()
    assert len(numbers) == len(names) > 20_000
    assert all(name not in dict(like(name)) for name in names[::50])
    assert all(0 < likeness <= 1 for name in names[::50] for _, likeness in like(name))
    assert list(like("no such word")) == []


@pytest.mark.parametrize(
    ("query", "name"),
    {
        "retrieve the page": "fetch",
        "the directory of a record": "folder",
        "a photo of the page": "take_picture",
    }.items(),
)
def test_of_equal_tools_the_one_with_the_like_name_comes_first(query: str, name: str) -> None:
    others = ("archive", "schedule", "highlight")
    hub = index(*(tool("web", one, "Works on a page or a record.") for one in (*others, name)))
    first, *_ = hub.search(query)
    assert first.id == f"web_{name}" and first.parts["like"] > 0


def test_like_words_alone_find_nothing() -> None:
    hub = index(tool("web", "fetch", "The contents of a page."))
    assert found(hub, "retrieve") == [] and found(hub, "fetch") == ["web_fetch"]


def test_a_word_that_the_query_says_is_not_like_itself() -> None:
    (hit,) = index(tool("web", "fetch", "The contents of a page.")).search("fetch or retrieve a page")
    assert hit.parts["like"] == 0


@pytest.mark.parametrize("query", [*ASKED, "github_create_issue", "retrieve a picture and erase the folder"])
def test_the_parts_add_up_to_the_score(query: str) -> None:
    for hit in index(*TOOLS).search(query):
        assert sum(hit.parts.values()) == pytest.approx(hit.score)
