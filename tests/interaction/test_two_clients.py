"""Clients that share one upstream process, with the same request ids and progress tokens: nobody gets another's.

Every answer and progress message carries a nonce that says whose it is.
"""

import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.e2e.client import HttpClient, Hub, Message, until
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.upstreams.launch import argv, events, received, servers_yaml

pytestmark = pytest.mark.anyio

UPSTREAMS = {"h": HANDSHAKE, "m": MODERN}
EXAMPLES = itertools.count()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


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
        for name in UPSTREAMS:
            assert len(events(root / f"{name}.journal", "start")) == 1  # one shared process all along


@dataclass(frozen=True)
class Step:
    """One call of a client. `cancel` is how many of its messages it waits for before it gives up; None: never."""

    tool: str
    upstream: str
    messages: int
    delay: float
    late: float
    cancel: int | None


@dataclass
class Told:
    """What one call was told, and whether its client gave up."""

    nonce: str
    id: int
    step: Step
    messages: list[Message] = field(default_factory=list)
    cancelled: bool = False


STEPS = st.builds(
    Step,
    tool=st.sampled_from(["progress", "progress", "progress", "echo", "slow"]),
    upstream=st.sampled_from(sorted(UPSTREAMS)),
    messages=st.integers(0, 6),
    delay=st.sampled_from([0, 0, 0.002, 0.01]),
    late=st.sampled_from([0, 0, 0.005, 0.02]),
    cancel=st.sampled_from([None, None, None, 0, 1, 3]),
)
CLIENTS = st.lists(st.tuples(st.sampled_from(ERAS), st.lists(STEPS, min_size=1, max_size=6)), min_size=2, max_size=3)


def arguments(step: Step, nonce: str) -> Message:
    return {
        "progress": {"n": step.messages, "nonce": nonce, "delay": step.delay},
        "echo": {"text": "x", "nonce": nonce},
        "slow": {"seconds": step.delay, "nonce": nonce},
    }[step.tool]


async def follow(peer: Peer, told: Told) -> None:
    """Makes the call and keeps all that comes; gives up as its step says."""
    step = told.step
    client = peer.wire
    assert isinstance(client, HttpClient)
    await anyio.sleep(step.late)  # the draw of the interleaving, nothing waits for it
    call = {"name": f"{step.upstream}_{step.tool}", "arguments": arguments(step, told.nonce)}
    message = client.message("tools/call", peer.params(call, progressToken=told.id), id=told.id)
    async with client.stream(message) as stream:
        while True:
            if step.cancel == len(told.messages) and not told.cancelled:
                told.cancelled = True
                if peer.era == MODERN:
                    return  # leaving the stream is the cancellation
                await client.notify("notifications/cancelled", {"requestId": told.id})
            count = sum(1 for event in stream.events if event.data)
            rest = await stream.rest() if told.cancelled else None
            if rest is not None:
                told.messages += rest.messages[count:]
                return
            event = await stream.next_event()
            if event.data:
                told.messages.append(event.message)
                if "method" not in event.message:
                    return


def check(told: Told) -> None:
    answers = [message for message in told.messages if "method" not in message]
    progress = [message["params"] for message in told.messages if "method" in message]
    assert all(told.nonce in json.dumps(message) for message in told.messages if "error" not in message), told
    assert all(params["progressToken"] == told.id for params in progress), told
    assert all(answer["id"] == told.id for answer in answers), told
    values = [params["progress"] for params in progress]
    assert values == list(range(1, len(values) + 1)), told
    if told.cancelled:
        assert len(answers) <= 1, told
    else:
        assert ["result" in answer for answer in answers] == [True], told
        assert told.messages[-1] == answers[0], told
        assert len(progress) == (told.step.messages if told.step.tool == "progress" else 0), told


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(clients=CLIENTS)
async def test_nothing_reaches_the_wrong_client(hub: tuple[Hub, Path], clients: list[tuple[str, list[Step]]]) -> None:
    example = next(EXAMPLES)
    told: list[Told] = []
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number, (era, steps) in enumerate(clients):
                own = [Told(f"<{example}.{number}.{i}>", i, step) for i, step in enumerate(steps)]
                told += own
                tasks.start_soon(_one_client, hub[0], era, own)
    for one in told:
        check(one)


async def _one_client(hub: Hub, era: str, calls: list[Told]) -> None:
    async with connected(hub, era) as peer, anyio.create_task_group() as tasks:
        for told in calls:
            tasks.start_soon(follow, peer, told)


@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2), (HANDSHAKE, MODERN, MODERN)], ids="-".join)
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_many_calls_of_the_same_ids_at_once_keep_apart(
    hub: tuple[Hub, Path], upstream: str, eras: tuple[str, ...]
) -> None:
    example = next(EXAMPLES)
    step = Step("progress", upstream, 20, 0, 0, None)
    told = [[Told(f"<{example}.{number}.{i}>", i, step) for i in range(25)] for number in range(len(eras))]
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for era, own in zip(eras, told, strict=True):
                tasks.start_soon(_one_client, hub[0], era, own)
    for one in itertools.chain(*told):
        check(one)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_cancelling_ones_call_leaves_the_others_of_the_same_id_alone(
    hub: tuple[Hub, Path], upstream: str, era: str
) -> None:
    running, root = hub
    nonces = [f"cancel-{next(EXAMPLES)}-{upstream}-{era}-{i}" for i in range(2)]
    log = root / f"{upstream}.journal"
    answers: list[Message] = []

    def arrived(nonce: str) -> bool:
        return any(nonce in json.dumps(call) for call in received(log, "tools/call"))

    async with connected(running, era) as first, connected(running, era) as second:

        async def leave(peer: Peer, scope: anyio.CancelScope) -> None:
            assert isinstance(peer.wire, HttpClient)
            with scope:
                call = {"name": f"{upstream}_wait_cancel", "arguments": {"nonce": nonces[0]}}
                await peer.wire.post(peer.wire.message("tools/call", peer.params(call), id=1))

        async def stay(peer: Peer) -> None:
            arguments = {"seconds": 0.5, "nonce": nonces[1]}
            answers.append((await peer.call(f"{upstream}_slow", arguments, id=1)).result)

        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(leave, first, scope)
            tasks.start_soon(stay, second)
            await until(lambda: all(map(arrived, nonces)))
            if era == HANDSHAKE:
                assert isinstance(first.wire, HttpClient)
                await first.wire.notify("notifications/cancelled", {"requestId": 1})
            else:
                scope.cancel()
            await until(lambda: nonces[0] in [event["nonce"] for event in events(log, "cancelled")])
    assert nonces[1] in json.dumps(answers)
    assert nonces[1] not in [event["nonce"] for event in events(log, "cancelled")]


# -- log messages


def logs_in(messages: list[Message]) -> list[Any]:
    return [m["params"]["data"] for m in messages if m.get("method") == "notifications/message"]


@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2)], ids="-".join)
@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_log_messages_reach_their_own_client_or_nobody(
    hub: tuple[Hub, Path], upstream: str, eras: tuple[str, str]
) -> None:
    heard: list[list[Any]] = [[], []]
    nonces = [f"log-{next(EXAMPLES)}-{i}" for i in range(2)]
    alone: list[list[Any]] = [[], []]

    async with connected(hub[0], eras[0]) as first, connected(hub[0], eras[1]) as second:
        peers = (first, second)

        async def talk(i: int, into: list[list[Any]]) -> None:
            peer = peers[i]
            for n in (1, 20, 200):
                arguments = {"level": "error", "data": nonces[i], "n": n}
                level = {"log_level": "debug"} if peer.era == MODERN else {}
                into[i] += logs_in((await peer.call(f"{upstream}_calm_log", arguments, **level)).before)

        for peer in peers:
            if peer.era == HANDSHAKE:
                await peer.request("logging/setLevel", {"level": "debug"})
        for i in range(2):
            await talk(i, alone)
        async with anyio.create_task_group() as tasks:
            for i in range(2):
                tasks.start_soon(talk, i, heard)
    assert alone == [[nonce] * 221 for nonce in nonces]
    for nonce, data in zip(nonces, heard, strict=True):
        assert set(data) <= {nonce}


@pytest.mark.parametrize("upstream", UPSTREAMS)
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
