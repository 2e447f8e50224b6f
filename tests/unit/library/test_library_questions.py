"""Questions of real servers, of either era, to a host program: answered, declined, on streams, by a client."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from mcp_types import ElicitResult, TextContent

from mcp_hub import CallEvent, Completed, Hub, InputReceived, InputRequired
from tests.unit.library.test_library import hub_of
from tests.upstreams.launch import argv

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

FORM = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["handshake", "modern"])
async def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    command, *args = argv(name="a", era=request.param)
    config = {"servers": {"a": {"command": command, "args": args}}, "hub": {"store": "memory"}}
    async with hub_of(tmp_path_factory.mktemp("questions"), config) as opened:
        yield opened


@pytest.fixture(autouse=True)
async def _in_time() -> AsyncIterator[None]:
    with anyio.fail_after(240):
        yield


def answers(raw: bytes) -> Any:
    return json.loads(raw)["structuredContent"]["answers"]


@pytest.mark.parametrize("form", [FORM, ElicitResult(action="accept", content={"name": "Ada"})], ids=["json", "model"])
async def test_a_question_is_answered_while_events_go_on(hub: Hub, form: Any) -> None:
    seen: list[CallEvent] = []
    asked: list[InputRequired] = []

    async def on_question(question: InputRequired) -> Any:
        asked.append(question)
        await anyio.lowlevel.checkpoint()
        return form

    raw = await hub.call_tool("a_ask_form", {}, on_event=seen.append, on_question=on_question, raw=True)
    assert answers(raw) == {"form": {"result": FORM}}
    assert [question.method for question in asked] == ["elicitation/create"]
    assert [type(event) for event in seen if isinstance(event, InputRequired | InputReceived)] == [
        InputRequired,
        InputReceived,
    ]


async def test_question_may_be_declined_and_without_anybody_the_server_gets_an_error(hub: Hub) -> None:
    raw = await hub.call_tool("a_ask_form", {}, on_question=lambda question: None, raw=True)
    assert answers(raw) == {"form": {"result": {"action": "decline"}}}
    result = await hub.call_tool("a_ask_form", {})
    assert isinstance(result.content[0], TextContent)
    said = result.content[0].text
    assert "client cannot" in said or "did not declare elicitation" in said


async def test_questions_of_a_stream_are_answered_there(hub: Hub) -> None:
    async with hub.stream_tool("a_ask_form", {}, asks=True) as stream:
        async for event in stream:
            if isinstance(event, InputRequired):
                break
    assert stream.id is not None
    async with hub.resume(stream.id, after=stream.cursor) as again:
        (question,) = await again.questions()
        await again.answer(question, FORM)
        assert isinstance([event async for event in again][-1], Completed)
        assert answers(await again.result(raw=True)) == {"form": {"result": FORM}}
        assert await again.questions() == []


async def test_a_client_of_the_sdk_is_asked_itself(hub: Hub) -> None:
    async def elicited(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    for mode in ("legacy", "auto"):
        async with hub.connect(mode=mode, elicitation_callback=elicited) as client:
            result = await client.call_tool("a_ask_form", {})
            assert result.structured_content["answers"] == {"form": {"result": FORM}}, mode


# last: a call that was given up lets other sessions wait for its echo
async def test_what_on_question_raises_ends_the_call(hub: Hub) -> None:
    def on_question(question: InputRequired) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await hub.call_tool("a_ask_form", {}, on_question=on_question)
