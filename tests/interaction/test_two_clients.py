"""Log messages of clients that share one upstream process: they reach their own client or nobody."""

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import HANDSHAKE, MODERN, connected, http_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv, received, servers_yaml, starts
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}
EXAMPLES = itertools.count()


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, Path]]:
    root = tmp_path_factory.mktemp("shared")
    servers = {name: argv(name=name, era=era, journal=root / f"{name}.journal") for name, era in UPSTREAMS.items()}
    # where nobody ever gives a call up: for a while after that, log messages are withheld from everybody else
    servers |= {f"{name}_calm": argv(era=era) for name, era in UPSTREAMS.items()}
    async with http_hub(servers_yaml(servers), root) as running:
        async with connected(running, HANDSHAKE) as peer:
            await peer.names()
        yield running, root
        for name, era in UPSTREAMS.items():  # one shared process all along, and another to find out a modern one
            assert starts(root / f"{name}.journal") == 1 + (era == MODERN)


def logs_in(messages: list[Message]) -> list[Any]:
    return [m["params"]["data"] for m in messages if m.get("method") == "notifications/message"]


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.first(1)
async def test_log_messages_of_a_call_that_was_given_up_reach_nobody_else(hub: tuple[Hub, Path], upstream: str) -> None:
    """The upstream talks on for a while after the cancellation, when another client's call is all that is left."""
    running, root = hub
    nonce = f"given-up-{next(EXAMPLES)}"
    heard: list[Any] = []

    def arrived(what: str) -> bool:
        return any(what in json.dumps(call) for call in received(root / f"{upstream}.journal", "tools/call"))

    era = UPSTREAMS[upstream]
    level = {"log_level": "debug"} if era == MODERN else {}
    async with connected(running, era) as staying, connected(running, era) as leaving:
        assert isinstance(leaving.wire, HttpClient)

        async def stay() -> None:
            seen = await staying.call(f"{upstream}_slow", {"seconds": 1.5, "nonce": "stay" + nonce}, **level)
            heard.extend(logs_in(seen.before))

        async def leave(scope: anyio.CancelScope) -> None:
            assert isinstance(leaving.wire, HttpClient)
            with scope:
                call = {"name": f"{upstream}_log", "arguments": {"level": "error", "data": nonce, "n": 40_000}}
                await leaving.wire.post(leaving.wire.message("tools/call", leaving.params(call, **level), id=1))

        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(stay)
            await until(lambda: arrived("stay" + nonce))
            tasks.start_soon(leave, scope)
            await until(lambda: arrived(f'"data": "{nonce}"'))
            if era == HANDSHAKE:
                await leaving.wire.notify("notifications/cancelled", {"requestId": 1})
            else:
                scope.cancel()
    assert heard == []
