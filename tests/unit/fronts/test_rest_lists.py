"""`/v1/search`: the tools that fit a query, as programs read them. Resources and prompts need a server with some."""

import pytest

from tests.unit.fronts.rest_peer import ELSEWHERE, NARROW, RestPeer, problem

pytestmark = pytest.mark.anyio


async def test_search_gives_the_tools_that_fit_with_their_scores(peer: RestPeer) -> None:
    found = (await peer.ask("GET", "/v1/search?q=hold")).json
    best = found["hits"][0]
    assert (found["query"], found["starting"], best["name"], best["server"]) == ("hold", [], "hold", "local")
    assert best["score"] == pytest.approx(sum(best["parts"].values())) and "definition" not in best
    listed = (await peer.ask("GET", "/v1/tools")).json["tools"]
    full = (await peer.ask("GET", "/v1/search?q=hold&detail=full&limit=1")).json["hits"]
    assert [hit["definition"] for hit in full] == [tool for tool in listed if tool["name"] == "hold"]


async def test_search_finds_only_what_the_caller_may_use(peer: RestPeer) -> None:
    for token, names in ((NARROW, ["echo"]), (ELSEWHERE, [])):
        for query in ("echo", "hold"):
            found = (await peer.ask("GET", f"/v1/search?q={query}", token=token)).json["hits"]
            assert {hit["name"] for hit in found} <= set(names)
    assert (await peer.ask("GET", "/v1/search?q=echo", token=NARROW)).json["hits"]
    problem(await peer.ask("GET", "/v1/search?q=echo&server=local", token=ELSEWHERE), 404, "unknown_server")
    assert (await peer.ask("GET", "/v1/search?q=echo&server=local", token=NARROW)).json["hits"]


@pytest.mark.parametrize("query", ["", "q=", "q=%20", "q=a&limit=0", "q=a&limit=x", "q=a&detail=long"])
async def test_search_that_cannot_be_is_refused(peer: RestPeer, query: str) -> None:
    problem(await peer.ask("GET", f"/v1/search?{query}"), 400, "invalid_parameter")
