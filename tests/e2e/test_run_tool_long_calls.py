"""Long calls that `run_tool` makes: soft deadlines, tasks and partial content are tested as for direct calls."""

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e import test_soft_deadlines as early
from tests.e2e import test_streams_extension as streams
from tests.e2e import test_tasks as tasks
from tests.e2e.client import HttpClient
from tests.e2e.held_tools import Held, config
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, http_hub

pytestmark = pytest.mark.anyio


async def all_at_once(*behaviours: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Side by side on one hub, whose start is most of the time that each takes."""
    async with anyio.create_task_group() as running:
        for behaviour in behaviours:
            running.start_soon(behaviour)


# -- soft deadlines


async def check_soft_deadlines(peer: Peer, held: Held) -> None:
    """`hub_calls` and `hub_cancel` are run by `run_tool`, too."""
    await early.test_a_desktop_client_gets_its_answer_in_time_and_the_result_later((peer, held))
    await early.test_the_call_can_be_cancelled((peer, held))
    assert (await peer.call("quick")).text == "quick"
    how = early.still((await peer.call("job", {"nonce": "named"})).result)
    assert "job" in (await peer.call("hub_cancel", {"stream": how["id"]})).text


@pytest.mark.proof
async def test_a_client_that_would_cut_a_call_is_answered_in_time_over_stdio(tmp_path: Path) -> None:
    held = Held(tmp_path)
    async with early.over_stdio(tmp_path, early.DESKTOP) as wire:
        await check_soft_deadlines(Peer(wire, HANDSHAKE, runs_tools=True), held)


async def test_a_client_that_would_cut_a_call_is_answered_in_time_over_http(tmp_path: Path) -> None:
    held = Held(tmp_path)
    async with http_hub(config(clients=early.CLIENTS), tmp_path) as hub, HttpClient(hub.url) as wire:
        await wire.initialize(name=early.DESKTOP)
        await check_soft_deadlines(Peer(wire, HANDSHAKE, runs_tools=True), held)


# -- tasks


@pytest.mark.first(1)
@pytest.mark.parametrize(("front", "era"), [("stdio", MODERN), ("http", HANDSHAKE)])
async def test_run_tool_is_answered_with_the_task_of_what_it_runs(front: str, era: str, tmp_path: Path) -> None:
    async with tasks.client_of(front, tasks.config(tmp_path, era), tmp_path) as plain:
        client = tasks.Client(plain.wire, plain.root, runs_tools=True)
        (other := tmp_path / "other").mkdir()
        behaviours = [
            partial(tasks.test_slow_call_becomes_a_task_and_is_polled_to_its_end, client, tmp_path),
            partial(tasks.test_the_end_of_a_task_is_sent_to_listeners, client, other),
        ]
        await all_at_once(*behaviours)
        await tasks.test_a_task_asks_and_continues_with_the_answer(client)
        await tasks.test_a_cancelled_task_is_given_up_by_its_server(client)


async def test_a_tool_that_has_to_be_a_task_says_so_to_who_takes_none(tmp_path: Path) -> None:
    text = json.loads(tasks.config(tmp_path))
    text["servers"]["fixture"]["task"] = "required"
    async with tasks.client_of("stdio", json.dumps(text), tmp_path) as plain:
        for runs_tools in (False, True):
            refused = await Peer(plain.wire, MODERN, runs_tools=runs_tools).call("slow", {"seconds": 0})
            assert refused.error["code"] == -32021
        plain.runs_tools = True
        assert await plain.task("slow", seconds=1)


# -- partial content


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Held]]:
    root = tmp_path_factory.mktemp("streams")
    held = Held(root)
    async with http_hub(config(), root) as running:
        yield running.url, held


@pytest.mark.parametrize("era", ERAS)
async def test_partial_content_comes_and_can_be_read_from_any_mark(hub: tuple[str, Held], era: str) -> None:
    url, held = hub
    async with HttpClient(url) as wire:
        client = streams.Client(wire, era, True, held, runs_tools=True)
        await client.hello()
        await streams.test_every_event_comes_once_and_the_rest_from_the_mark(client)
        await streams.test_without_a_token_there_is_only_the_mark_and_it_leads_to_the_rest(client)
        if era == MODERN:  # its tool waits for files that are there from then on
            await streams.test_a_running_call_can_be_read_from_any_partial(client)
    async with HttpClient(url) as wire:
        plain = streams.Client(wire, era, False, held, runs_tools=True)
        await plain.hello()
        await streams.test_others_get_nothing_of_it_but_the_mark(plain)
