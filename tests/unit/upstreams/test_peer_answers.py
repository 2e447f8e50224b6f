"""Answers of servers that write every member of a message, also those that it has not."""

import pytest

from mcp_hub.errors import RpcError
from tests.unit.upstreams.local_calls import Recorder
from tests.unit.upstreams.scripted import talking, together
from tests.unit.upstreams.test_peer_doubts import CALL

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "members",
    ['"result":null,"error":{"code":-1,"message":"mine"}', '"result":{},"error":{"code":-1,"message":"mine"}'],
)
async def test_an_error_beside_a_result_is_the_error(members: str) -> None:
    async with talking() as (peer, server):
        with pytest.raises(RpcError, match="mine"):
            await together(server.reply("tools/call", members), peer.call(CALL, Recorder()))
