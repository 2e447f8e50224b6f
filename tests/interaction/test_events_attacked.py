"""MCP Events against hostile clients and servers: values of every size and kind are refused or bounded."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import MODERN, children, connected, http_hub
from tests.interaction.hooked import receiving, subscribe
from tests.interaction.hub_process import hub_process, written
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

NAME = "b_build_done"
OTHER = "b_build_other"
HUGE = 10**400
HOSTS = {"events": {"webhook_hosts": ["127.0.0.1"]}}


async def test_numbers_of_any_size_are_bounded_or_refused(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "push")}, **HOSTS)
    async with receiving() as receiver, http_hub(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        await peer.names("events/list", "events")
        poller = Poller(peer, NAME)
        await poller.poll()
        first = poller.cursor
        service.happens(1, 2, 3)
        await poller.until(lambda: len(poller.numbers) == 3)
        for wish, count in ((0, 1), (-7, 1), (2.0, 2), (1e300, 3), (None, 3)):
            page = (await peer.request("events/poll", {"name": NAME, "cursor": first, "maxEvents": wish})).result
            assert len(page["events"]) == count, wish
        for member in ("maxEvents", "maxAgeMs", "ttlMs"):
            values: list[object] = [HUGE, -HUGE, "1", True, [], {}]
            for value in values:
                error = (await peer.request("events/poll", {"name": NAME, "cursor": first, member: value})).error
                assert error["code"] == -32602, (member, value)
        for age in (-5, 0, 1e300, 86_400_000.0):
            page = (await peer.request("events/poll", {"name": NAME, "cursor": first, "maxAgeMs": age})).result
            assert page["truncated"] is (age <= 0)
        for ttl in (-1, 1e300, 90_000.0):
            assert (await subscribe(peer, NAME, receiver.url(), ttlMs=ttl)).result["refreshBefore"]
        assert (await subscribe(peer, NAME, receiver.url(), ttlMs=HUGE)).error["code"] == -32602
        assert (await subscribe(peer, NAME, receiver.url("/2"), cursor=first, maxAgeMs=1e300)).result["cursor"] == first


async def test_failures_of_a_server_name_no_paths_to_others_than_the_operator(tmp_path: Path) -> None:
    service, program = Service(tmp_path, "b"), tmp_path / "hidden" / "run"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec {' '.join(service.argv(MODERN, 'push'))}\n")
    program.chmod(0o755)
    tokens = [{"token": "alice-0123456789abcdef", "principal": "alice"}]
    text = config({"b": [str(program)]}, tokens=tokens, **HOSTS)
    async with (
        receiving() as receiver,
        hub_process(text, tmp_path) as hub,
        connected(hub, MODERN, "alice-0123456789abcdef") as alice,
        connected(hub, MODERN, "alice-0123456789abcdef") as other,
    ):
        await alice.names("events/list", "events")
        async with streaming(other, NAME) as stream:
            program.rename(program.with_name("away"))
            for pid in children(hub.pid):
                os.kill(pid, signal.SIGKILL)
            await stream.until(lambda: any(params["error"]["code"] == 1001 for params in stream.of("error")))
            params = {"name": OTHER, "arguments": {"branch": "x"}}
            polled = (await alice.request("events/poll", params)).error
            hooked = (await subscribe(alice, OTHER, receiver.url(), arguments={"branch": "x"})).error
            for action in ("wait", "subscribe"):
                waited = await alice.call("hub_events", {"action": action, **params})
                assert "has failed" in waited.text and "hidden" not in waited.text
            for error in (polled, hooked, *(each["error"] for each in stream.of("error"))):
                assert error["code"] in (1001, 1002) and "hidden" not in str(error)


async def test_page_of_rest_waits_for_an_event_while_the_server_does_not_deliver(tmp_path: Path) -> None:
    service, program = Service(tmp_path, "b"), tmp_path / "run"
    program.write_text(f"#!/bin/sh\nexec {' '.join(service.argv(MODERN, 'push'))}\n")
    program.chmod(0o755)
    async with hub_process(config({"b": [str(program)]}), tmp_path) as hub, RestClient(hub, "none") as client:
        page = f"/events?name={NAME}&wait="
        cursor = (await client.ask("GET", f"{page}0")).json()["cursor"]
        async with client.events(f"/events?name={NAME}") as stream:
            program.rename(program.with_name("away"))
            for pid in children(hub.pid):
                os.kill(pid, signal.SIGKILL)
            while (await stream.next_event()).event != "error":
                pass
            async with anyio.create_task_group() as tasks:
                pages: list[Any] = []

                async def read() -> None:
                    pages.append((await client.ask("GET", f"{page}200&after={cursor}")).json())

                tasks.start_soon(read)
                await anyio.wait_all_tasks_blocked()
                program.with_name("away").rename(program)
                service.happens(1)
            assert [event["data"]["n"] for event in pages[0]["events"]] == [1]


async def test_name_that_means_another_type_after_a_reload_brings_nothing_of_the_former_one(tmp_path: Path) -> None:
    former, later = Service(tmp_path, "b"), Service(tmp_path, "c")
    settings = json.loads(config({"b": former.argv(MODERN, "push"), "c": later.argv(MODERN, "push")}, prefix="never"))
    settings["hub"]["tokens"] = [{"token": "a" * 32, "principal": "ann", "profile": "team"}]

    def text(server: str) -> str:
        return json.dumps({**settings, "profiles": {"team": {"servers": [server]}, "rest": {}}})

    name = "build_done"
    async with (
        hub_process(text("b"), tmp_path) as hub,
        connected(hub, MODERN, "a" * 32) as ann,
        connected(hub, MODERN, "a" * 32) as other,
        RestClient(hub, "a" * 32) as client,
        streaming(ann, name) as stream,
        client.events(f"/events?name={name}") as events,
        anyio.create_task_group() as tasks,
    ):
        waited: list[str] = []

        async def wait() -> None:
            waited.append((await other.call("hub_events", {"action": "wait", "name": name})).text)

        tasks.start_soon(wait)
        assert (await events.next_event()).event == "active"
        written(tmp_path, text("c"))
        await until(lambda: "config_reloaded" in hub.stderr)
        former.happens(1)
        await stream.until(lambda: bool(stream.of("terminated")))
        assert (await events.next_event()).event == "problem"
        assert stream.numbers == []
        await until(lambda: bool(waited))
        assert "another event type" in waited[0] and '"n":1' not in waited[0]
        async with streaming(ann, name, id="t") as again:
            later.happens(2)
            await again.until(lambda: again.numbers == [2])
