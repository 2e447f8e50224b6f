"""Log messages while two sessions call one stdio server: `logs: hub`, `shared` and `turns`, over both fronts."""

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_hub
from tests.upstreams.launch import entry
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

RULES = ("hub", "shared", "turns")
UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}
ANN, BEN = "ann-" + "a" * 32, "ben-" + "b" * 32
LOGS = 3
CALLS = 10
MEETINGS = itertools.count()


SERVERS = {f"{rule}{name}": {**entry(era=era), "logs": rule} for rule in RULES for name, era in UPSTREAMS.items()}


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    root = tmp_path_factory.mktemp("logs")
    tokens = [{"token": ANN, "principal": "ann"}, {"token": BEN, "principal": "ben"}]
    async with http_hub(json.dumps({"servers": SERVERS, "hub": {"tokens": tokens}}), root) as running:
        async with connected(running, HANDSHAKE, ANN) as peer:
            await peer.names()
        yield running


@pytest.fixture
async def rest(hub: Hub) -> AsyncIterator[RestClient]:
    async with RestClient(hub, ANN) as client:
        yield client


class Talker:
    """A client that asked for log messages of a level and above, or for none; `data` is what its calls have logged."""

    def __init__(self, peer: Peer, data: str, level: str | None = "debug") -> None:
        self.peer = peer
        self.data = data
        self.level = level
        self.heard: list[list[Any]] = []

    async def begin(self) -> None:
        if self.peer.era == HANDSHAKE and self.level is not None:
            await self.peer.request("logging/setLevel", {"level": self.level})

    async def call(self, tool: str, **more: Any) -> None:
        arguments = {"level": "warning", "data": self.data, "n": LOGS, **more}
        level = {"log_level": self.level} if self.peer.era == MODERN and self.level is not None else {}
        self.heard.append(logs_in((await self.peer.call(tool, arguments, **level)).before))


def logs_in(messages: list[Message]) -> list[Any]:
    return [m["params"]["data"] for m in messages if m.get("method") == "notifications/message"]


async def together(server: str, *talkers: Talker) -> list[list[Any]]:
    """Two calls that log while both are in flight; what their clients heard, sorted."""
    meeting = f"m{next(MEETINGS)}"
    async with anyio.create_task_group() as tasks:
        for talker in talkers:
            await talker.begin()
            tasks.start_soon(lambda one: one.call(f"{server}_log_together", meeting=meeting), talker)
    return [sorted(talker.heard.pop()) for talker in talkers]


async def flow(rest: RestClient, server: str) -> Any:
    return (await rest.ask("GET", f"/servers/{server}")).json()["logs"]


async def gained(rest: RestClient, server: str, before: Any) -> tuple[int, int]:
    """The log messages that were sent on and kept since then."""
    after = await flow(rest, server)
    return after["sent"] - before["sent"], after["kept"] - before["kept"]


@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2)], ids="-".join)
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("rule", ["hub", "shared"])
async def test_two_sessions_of_one_principal_share_what_is_logged_or_neither_gets_it(
    hub: Hub, rest: RestClient, rule: str, upstream: str, eras: tuple[str, str]
) -> None:
    server = f"{rule}{upstream}"
    before = await flow(rest, server)
    assert before["rule"] == rule
    async with connected(hub, eras[0], ANN) as first, connected(hub, eras[1], ANN) as second:
        heard = await together(server, Talker(first, "a"), Talker(second, "b"))
    everything = ["a"] * LOGS + ["b"] * LOGS
    assert heard == ([everything, everything] if rule == "shared" else [[], []])
    assert await gained(rest, server, before) == ((2 * LOGS, 0) if rule == "shared" else (0, 2 * LOGS))


@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2)], ids="-".join)
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_sessions_of_two_principals_share_nothing(
    hub: Hub, rest: RestClient, upstream: str, eras: tuple[str, str]
) -> None:
    server = f"shared{upstream}"
    before = await flow(rest, server)
    async with connected(hub, eras[0], ANN) as first, connected(hub, eras[1], BEN) as second:
        assert await together(server, Talker(first, "a"), Talker(second, "b")) == [[], []]
    assert await gained(rest, server, before) == (0, 2 * LOGS)


@pytest.mark.parametrize("level", ["error", None])
@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2)], ids="-".join)
async def test_a_session_shares_only_what_it_asked_for(
    hub: Hub, rest: RestClient, eras: tuple[str, str], level: str | None
) -> None:
    """Its calls have warnings logged, which the other session gets, too."""
    before = await flow(rest, "sharedh")
    async with connected(hub, eras[0], ANN) as first, connected(hub, eras[1], ANN) as second:
        heard = await together("sharedh", Talker(first, "a"), Talker(second, "b", level))
    assert heard == [["a"] * LOGS + ["b"] * LOGS, []]
    assert await gained(rest, "sharedh", before) == (2 * LOGS, 0)


@pytest.mark.first(2)
@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2)], ids="-".join)
@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("tokens", [(ANN, ANN), (ANN, BEN)], ids=["one principal", "two principals"])
async def test_sessions_that_take_turns_get_all_of_their_own_messages(
    hub: Hub, rest: RestClient, upstream: str, eras: tuple[str, str], tokens: tuple[str, str]
) -> None:
    server = f"turns{upstream}"
    before = await flow(rest, server)
    async with connected(hub, eras[0], tokens[0]) as first, connected(hub, eras[1], tokens[1]) as second:
        talkers = [Talker(first, "a"), Talker(second, "b")]

        async def talk(talker: Talker) -> None:
            await talker.begin()
            for _ in range(CALLS):
                await talker.call(f"{server}_log", delay=0.005)

        async with anyio.create_task_group() as tasks:
            for talker in talkers:
                tasks.start_soon(talk, talker)
    assert [talker.heard for talker in talkers] == [[["a"] * LOGS] * CALLS, [["b"] * LOGS] * CALLS]
    assert await gained(rest, server, before) == (2 * LOGS * CALLS, 0)


async def test_sessions_that_asked_for_no_messages_do_not_take_turns(hub: Hub) -> None:
    """Also while another one has asked for some: each of these calls waits for the other one to be there."""
    async with connected(hub, HANDSHAKE, ANN) as asking, connected(hub, HANDSHAKE, ANN) as first:
        talker = Talker(asking, "a")
        await talker.begin()
        await talker.call("turnsh_log")
        assert talker.heard == [["a"] * LOGS]
        async with connected(hub, MODERN, ANN) as second:
            assert await together("turnsh", Talker(first, "b", None), Talker(second, "c", None)) == [[], []]


@pytest.mark.parametrize("upstream", UPSTREAMS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.first(3)
async def test_two_sessions_over_one_pipe(tmp_path: Path, rule: str, upstream: str) -> None:
    """Those of a client that speaks both eras; a message that both get comes twice."""
    server = f"{rule}{upstream}"
    own = json.dumps({"servers": {server: SERVERS[server]}})
    async with stdio_hub(own, tmp_path) as pipe, AsyncExitStack() as stack:
        await pipe.initialize()
        peers = [await stack.enter_async_context(connected(pipe, era)) for era in ERAS]
        await peers[0].names()
        talkers = [Talker(peer, data) for peer, data in zip(peers, "ab", strict=True)]
        if rule == "turns":
            async with anyio.create_task_group() as tasks:
                for talker in talkers:
                    await talker.begin()
                    tasks.start_soon(lambda one: one.call(f"{server}_log", delay=0.005), talker)
        else:
            await together(server, *talkers)
        expected = {"hub": [], "shared": ["a", "a"] * LOGS + ["b", "b"] * LOGS, "turns": ["a"] * LOGS + ["b"] * LOGS}
        assert sorted(logs_in(pipe.transcript)) == expected[rule]
