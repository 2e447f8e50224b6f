"""Calls of models over REST, in front of servers of both eras that are processes: one request, each call by itself."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.formats.calls import write_calls
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import ModelCall
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, http_hub
from tests.unit.fronts.format_calls import outcomes
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

CONFIG = servers_yaml({era: argv(era=era) for era in ERAS}, hub={"prefix": "always"})


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    """One for each test: a server that dies often in a row is not started again at once."""
    async with http_hub(CONFIG, tmp_path) as hub:
        yield hub


def body(into: Format, *calls: tuple[str, dict[str, Any]]) -> Any:
    return write_calls([ModelCall(f"c{at}", name, given) for at, (name, given) in enumerate(calls)], into)


@pytest.mark.parametrize("into", list(Format))
@pytest.mark.first(1)
async def test_calls_go_to_servers_of_both_eras_and_one_that_dies_takes_no_other_with_it(
    rest: RestClient, into: Format
) -> None:
    calls = [(f"{era}_{tool}", given) for era in ERAS for tool, given in [("tool_error", {"text": f"bad {era}"})]]
    calls += [("modern_crash", {}), ("handshake_echo", {"text": "alive"}), ("handshake_nothing", {})]
    answer = (await rest.ask("POST", f"/tools/call?format={into}", body(into, *calls))).json()
    statuses = [one["status"] for one in answer["calls"]]
    assert statuses == ["tool_error", "tool_error", "failed", "completed", "refused"]
    assert answer["calls"][2]["problem"]["outcome"] == "unknown"
    found = outcomes(into, answer["messages"])
    assert [is_error for _, _, is_error in found] == [True, True, True, False, True]
    assert [f"bad {era}" in text for era, (_, text, _) in zip(ERAS, found, strict=False)] == [True, True]
    narrowed = await rest.ask("POST", f"/tools/call?format={into}&server=modern", body(into, *calls[:2]))
    assert [one["status"] for one in narrowed.json()["calls"]] == ["refused", "tool_error"]


async def test_questions_of_several_calls_are_answered_by_their_streams_while_the_events_come(rest: RestClient) -> None:
    calls = body(Format.OPENAI, *((f"{era}_ask_form", {"nonce": era}) for era in ERAS))
    async with rest.events("/tools/call?format=openai", body=calls) as stream:
        for _ in ERAS:
            event = await stream.wait_for(lambda event: event["type"] == "input-required")
            said = {"key": event["data"]["key"], "action": "accept", "content": {"answer": event["call"]}}
            assert (await rest.ask("POST", f"/streams/{event['stream']}/input", said)).status_code == 202
        *_, closed = (await stream.rest()).events
    assert closed.event == "closed"
    for id_, text, is_error in outcomes(Format.OPENAI, closed.message["messages"]):
        assert not is_error and f'"{id_}"' in text, text


async def test_key_of_a_request_holds_after_the_hub_was_killed(tmp_path: Path) -> None:
    calls = body(Format.GEMINI, ("modern_echo", {"text": "a"}), ("handshake_wait_cancel", {"nonce": "w"}))
    async with http_hub(CONFIG, tmp_path) as hub, RestClient(hub) as client:
        await client.settled()
        first = await client.ask("POST", "/tools/call?format=gemini", calls, idempotency_key="k", prefer="wait=0")
        assert first.status_code == 202, first.text
        streams = [one["stream"] for one in first.json()["calls"]]
        await client.until(streams[0], "completed")
        await hub.kill_alone()
    async with http_hub(CONFIG, tmp_path) as hub, RestClient(hub) as client:
        await client.until(streams[1], "failed")
        again = await client.ask("POST", "/tools/call?format=gemini", calls, idempotency_key="k")
        states = again.json()["calls"]
        assert (again.status_code, [one["stream"] for one in states]) == (200, streams)
        assert [one["status"] for one in states] == ["completed", "failed"]
        assert states[1]["problem"]["code"] == "hub_restarted"
        other = await client.ask("POST", "/tools/call?format=gemini", calls[:1], idempotency_key="k")
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
