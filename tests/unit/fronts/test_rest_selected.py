"""REST calls of tools that the caller did not select, or that its token does not let through, by any road."""

from typing import Any

import pytest

from tests.unit.fronts.rest_peer import NARROW, RestPeer, problem

pytestmark = pytest.mark.anyio

WAIT = {"nonce": "n"}


def through(tool: str, **arguments: Any) -> dict[str, Any]:
    """The arguments of `run_tool`."""
    return {"name": tool, "arguments": arguments}


async def call(peer: RestPeer, tool: str, arguments: Any, selected: list[str] | None = None, **options: Any) -> Any:
    body = {"arguments": arguments} if selected is None else {"arguments": arguments, "tools": selected}
    return await peer.ask("POST", f"/v1/tools/{tool}/call", body, **options)


async def test_what_is_not_selected_is_unknown_through_run_tool_too(peer: RestPeer) -> None:
    for selected in (["run_tool"], ["echo"], []):
        refused = await call(peer, "run_tool", through("echo", text="x"), selected)
        problem(refused, 404, "unknown_tool")
    done = await call(peer, "run_tool", through("echo", text="x"), ["run_tool", "echo"])
    assert done.status == 200 and b'"x"' in done.body
    assert (await call(peer, "run_tool", {"arguments": {}}, ["run_tool"])).status == 400


async def test_key_of_a_call_gives_no_result_to_a_token_that_may_not_call_the_tool(peer: RestPeer) -> None:
    peer.tools.go.set()
    for tool, arguments in (("wait", WAIT), ("run_tool", through("wait", **WAIT))):
        headers = {"idempotency-key": tool}
        first = await call(peer, tool, arguments, headers=headers)
        assert first.status == 200 and (await call(peer, tool, arguments, headers=headers)).json == first.json
        foreign = await call(peer, tool, arguments, headers=headers, token=NARROW)
        assert b"n 0" not in foreign.body and b"Unknown tool: wait" in foreign.body
