"""Each profile's index: what changed is indexed anew, in the order of the servers; searches wait for their turn."""

from collections.abc import Mapping, Sequence

import anyio
import pytest

from mcp_hub.catalog.catalog import _Indexes
from mcp_hub.catalog.offers.filters import Filter, Selector
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import SearchIndex
from mcp_hub.catalog.views.view import CatalogView, build
from tests.unit.catalog.offers import offer, tool

pytestmark = pytest.mark.anyio

RULES = ViewRules({name: ServerRules(name) for name in ("a", "b", "c")})


def view(tools: Mapping[str, Sequence[str]], rules: ViewRules = RULES) -> CatalogView:
    """Servers whose tools are called as given, and described alike."""
    described = {
        server: [tool(name, description=f"Sends a {name}.") for name in names] for server, names in tools.items()
    }
    return build([offer(server, *its) for server, its in described.items()], rules)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The servers that were indexed, in order."""
    names: list[str] = []
    original = SearchIndex.put

    def noting(self: SearchIndex, server: str, tools: Sequence[Searchable]) -> None:
        names.append(server)
        original(self, server, tools)

    monkeypatch.setattr(SearchIndex, "put", noting)
    return names


async def found(indexes: _Indexes, seen: CatalogView, query: str, profile: str | None = None) -> list[str]:
    return [hit.id for hit in (await indexes.search(profile, seen, query, 8, None))]


async def test_only_what_has_changed_is_indexed_anew(put: list[str]) -> None:
    indexes = _Indexes({})
    first = view({"a": ["letter"], "b": ["parcel"]})
    assert await found(indexes, first, "letter") == ["a_letter"]
    assert await found(indexes, first, "parcel") == ["b_parcel"]
    assert put == ["a", "b"]
    second = view({"a": ["letter"], "b": ["parcel", "crate"], "c": ["telegram"]})
    assert await found(indexes, second, "crate") == ["b_crate"]
    assert await found(indexes, second, "telegram") == ["c_telegram"]
    assert put == ["a", "b", "b", "c"]


async def test_what_is_gone_is_not_found() -> None:
    indexes = _Indexes({})
    assert await found(indexes, view({"a": ["letter"], "b": ["parcel"]}), "parcel") == ["b_parcel"]
    assert await found(indexes, view({"a": ["letter"]}), "parcel") == []
    assert await found(indexes, view({"a": ["crate"]}), "letter") == []


async def test_equally_good_tools_are_in_the_order_of_their_servers_whenever_they_came_up() -> None:
    every = {"a": ["letter"], "b": ["letter to_x"], "c": ["letter to_y"]}
    orders = []
    for late in (None, "a", "b"):
        indexes = _Indexes({})
        if late is not None:
            await found(indexes, view({name: own for name, own in every.items() if name != late}), "letter")
        orders.append(await found(indexes, view(every), "sends a letter"))
    assert len(orders[0]) == 3 and orders[1] == orders[0] == orders[2]


async def test_a_profile_has_an_index_of_its_own() -> None:
    indexes = _Indexes({})
    tools = {"a": ["letter", "parcel"]}
    hiding = ViewRules(RULES.servers, Filter(deny=(Selector("*parcel"),)))
    assert await found(indexes, view(tools), "parcel") == ["a_parcel"]
    assert await found(indexes, view(tools, hiding), "parcel", "small") == []
    assert await found(indexes, view(tools), "parcel") == ["a_parcel"]


async def test_searches_at_the_same_time_index_once(put: list[str]) -> None:
    indexes, seen = _Indexes({}), view({"a": ["letter"], "b": ["parcel"]})
    answers: list[list[str]] = []

    async def search() -> None:
        answers.append(await found(indexes, seen, "letter"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(search)
    assert answers == [["a_letter"]] * 5 and put == ["a", "b"]
