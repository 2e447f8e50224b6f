"""Whatever servers and queries say: an index is what was put into it, and its answers are in order."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import Hit, SearchIndex
from mcp_hub.catalog.search.words import key
from tests.examples import examples

common = [
    *("create", "list", "issue", "issues", "page", "file", "searchFiles", "get_user", "GitHub", "the", "天气", "é"),
    *("🍰", "(/tmp", "#12", "ABC-1", "tick", "off", "Datei", "löschen", "文件", "SELECT a FROM b", "directory"),
]
texts = st.lists(st.sampled_from(common) | st.text(max_size=5), max_size=6).map(" ".join) | st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["properties", "items", "enum", "description"]) | texts, inner, max_size=4)
    ),
    max_leaves=8,
)
schemas = json_values | st.fixed_dictionaries({"properties": st.dictionaries(texts, json_values, max_size=3)})
servers = st.sampled_from(["github", "git", "Notes", "天气", ""])
described = st.tuples(texts, texts, schemas)
changes = st.lists(st.tuples(servers, st.none() | st.lists(described, max_size=4)), max_size=6)


def tools(server: str, rows: list[tuple[str, str, Any]]) -> list[Searchable]:
    return [Searchable(f"{server}/{n}", server, *row) for n, row in enumerate(rows)]


def changed(
    made: list[tuple[str, list[tuple[str, str, Any]] | None]],
) -> tuple[SearchIndex, dict[str, list[Searchable]]]:
    """An index after changes (None drops the server), and what must be in it."""
    index, held = SearchIndex(), dict[str, list[Searchable]]()
    for server, rows in made:
        if rows is None:
            index.drop(server)
            held.pop(server, None)
        else:
            held[server] = tools(server, rows)
            index.put(server, held[server])
        index.search("create a github issue")  # what it remembers must not outlast the next change
    return index, held


@settings(max_examples=examples(60))
@given(changes, st.lists(texts, min_size=1, max_size=3), st.none() | servers)
def test_an_index_answers_as_one_that_was_built_at_once(made: Any, queries: list[str], server: str | None) -> None:
    index, held = changed(made)
    fresh = SearchIndex()
    for name, its in held.items():
        fresh.put(name, its)
    names = [one.name for its in held.values() for one in its]
    for query in (*queries, *names[:3]):
        assert index.search(query, 4, server) == fresh.search(query, 4, server)


def in_order(answer: Sequence[Hit]) -> bool:
    scores = [hit.score for hit in answer]
    return scores == sorted(scores, reverse=True)


@settings(max_examples=examples(60))
@given(changes, texts | st.text(), st.integers(-1, 9), st.none() | servers)
def test_hits_are_in_order_and_each_tool_is_shown_once(made: Any, query: str, limit: int, server: str | None) -> None:
    index, held = changed(made)
    answer = index.search(query, limit, server)
    shown = [one for hit in answer for one in (hit.id, *hit.also)]
    searched = held.values() if server is None else [held.get(server, [])]
    assert len(shown) == len(set(shown)) and set(shown) <= {one.id for its in searched for one in its}
    assert len(answer) <= max(limit, 0) and in_order(answer)


@settings(max_examples=examples(60))
@given(changes, st.data())
def test_a_tool_is_first_for_its_own_name(made: Any, data: st.DataObject) -> None:
    index, held = changed(made)
    every = [one for its in held.values() for one in its]
    if every:
        wanted = data.draw(st.sampled_from(every))
        assert index.search(wanted.id)[0].id == wanted.id
        if key(wanted.name):
            (first, *_) = index.search(wanted.name)
            named = {one.id for one in every if key(wanted.name) in (key(one.name), key(one.id))}
            assert first.id in named and first.parts["exact"] > 0
