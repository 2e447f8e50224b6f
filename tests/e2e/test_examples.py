"""The programs in `examples/`, as a reader runs them: a hub in front of real servers, and a model that has a script."""

import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from rigs.clients.install import node
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.scripted_models import (
    Anthropic,
    Call,
    Gemini,
    OpenAiChat,
    OpenAiResponses,
    Provider,
    ScriptedModel,
    Turn,
    functions_of,
    serving,
)
from tests.interaction.fronts import http_hub
from tests.upstreams.child import HttpUpstream

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LIMIT = 600
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
PAGE = "http://127.0.0.1:8000"

ADD = Call("mine_add", {"a": 17.5, "b": 24.5})
BARS = Call("charts_draw_bars", {"values": [3, 1, 2]})
NO_BARS = Call("charts_draw_bars", {"values": [99]})
COUNT = Call("mine_count_down", {"start": 2, "pause": 0.1})
REFUSAL = "Error executing tool draw_bars: Give 1 to 50 numbers from 0 to 50."
LIFT_OFF = '{"started_at":2,"status":"lift-off"}'
DONE: Turn = ["It is done."]
AGENTS: dict[str, type[Provider]] = {
    "anthropic_agent.py": Anthropic,
    "openai_chat_agent.py": OpenAiChat,
    "openai_responses_agent.py": OpenAiResponses,
    "gemini_agent.py": Gemini,
    "curl_agent.sh": OpenAiResponses,
}
SEARCHES: dict[str, tuple[type[Provider], str]] = {
    "anthropic_search.py": (Anthropic, "find_tools"),
    "openai_search.py": (OpenAiResponses, "tool_search"),
}
"""With the name under which the model finds the search."""


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """With the configuration of the examples, from whose folder the page of the browser comes."""
    config = (EXAMPLES / "servers.yaml").read_text()
    async with http_hub(config, tmp_path_factory.mktemp("examples"), PATH=PATH, PYTHON=sys.executable) as hub:
        yield hub


@pytest.fixture(scope="module")
async def image(hub: Hub) -> str:
    """The one that `BARS` draws, as base64."""
    async with RestClient(hub) as rest:
        result = (await rest.call(BARS.name, BARS.arguments)).json()
    found: str = result["result"]["content"][0]["data"]
    assert base64.b64decode(found).startswith(b"\x89PNG\r\n")
    return found


async def run(hub: Hub, model: ScriptedModel, example: Path | str, cwd: Path = ROOT) -> list[str]:
    """The lines that the example prints."""
    path = EXAMPLES / example
    command = ["sh" if path.suffix == ".sh" else sys.executable, str(path), "What", "now?"]
    return await printed(command, model, cwd, HUB_URL=hub.url.removesuffix("/mcp"))


async def printed(command: list[str], model: ScriptedModel, cwd: Path = ROOT, **env: str) -> list[str]:
    with anyio.fail_after(LIMIT), serving(model) as keys:
        done = await anyio.run_process(command, env={**os.environ, **keys, **env}, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n")


def results(provider: Provider, request: dict[str, Any]) -> list[Any]:
    """What the model was given behind its last answer."""
    match provider:
        case Anthropic():
            found: list[Any] = request["messages"][-1]["content"]
        case OpenAiChat():
            found = request["messages"][request["messages"].index(provider.said[-2]) + 1 :]
        case OpenAiResponses():
            found = [item for item in request["input"] if item.get("type") == "function_call_output"]
        case _:
            found = [part["functionResponse"] for part in request["contents"][-1]["parts"]]
    return found


def expected(provider: Provider, image: str) -> list[Any]:
    """The results of `ADD`, `BARS` and `NO_BARS` as the provider takes them."""
    match provider:
        case Anthropic():
            source = {"type": "base64", "media_type": "image/png", "data": image}
            contents = [[{"type": "text", "text": "42.0"}], [{"type": "image", "source": source}]]
            found = [{"content": content} for content in contents]
            found.append({"content": [{"type": "text", "text": REFUSAL}], "is_error": True})
            return [
                {"type": "tool_result", "tool_use_id": f"call_0_{at}", **members} for at, members in enumerate(found)
            ]
        case OpenAiChat():
            texts = ["42.0", "[image: image/png, in the next message]", f"Error: {REFUSAL}"]
            url = {"url": f"data:image/png;base64,{image}"}
            said = {"type": "text", "text": "From the result of the call call_0_1 of charts_draw_bars:"}
            return [
                *({"role": "tool", "tool_call_id": f"call_0_{at}", "content": text} for at, text in enumerate(texts)),
                {"role": "user", "content": [said, {"type": "image_url", "image_url": url}]},
            ]
        case OpenAiResponses():
            picture = {"type": "input_image", "image_url": f"data:image/png;base64,{image}", "detail": "auto"}
            outputs = ["42.0", [picture], f"Error: {REFUSAL}"]
            return [
                {"type": "function_call_output", "call_id": f"call_0_{at}", "output": output}
                for at, output in enumerate(outputs)
            ]
        case _:
            blob = {"mime_type": "image/png", "data": image.replace("+", "-").replace("/", "_")}
            bars = {"name": "charts_draw_bars"}
            return [
                {"id": "call_0_0", "name": "mine_add", "response": {"output": "42.0"}},
                {"id": "call_0_1", **bars, "response": {"output": ""}, "parts": [{"inline_data": blob}]},
                {"id": "call_0_2", **bars, "response": {"error": REFUSAL}},
            ]


@pytest.mark.parametrize("example", ["openai_chat_agent.py", *sorted({*AGENTS} - {"openai_chat_agent.py"})])
@pytest.mark.first(1)
async def test_agent_has_all_calls_of_an_answer_made_and_gives_the_model_their_results(
    hub: Hub, image: str, example: str
) -> None:
    model = ScriptedModel(AGENTS[example](), [["Let me see.", ADD, BARS, NO_BARS], DONE])
    assert await run(hub, model, example) == ["Let me see.", "It is done.", ""]
    assert len(model.requests) == 2
    assert results(model.provider, model.requests[-1]) == expected(model.provider, image)


@pytest.mark.proof
async def test_agent_uses_a_server_that_is_fetched_from_its_index(hub: Hub) -> None:
    async with RestClient(hub) as rest:
        await rest.ask("GET", "/tools", prefer="wait=100")  # waits until each server is ready or has failed
        servers = {one["server"]: one for one in (await rest.ask("GET", "/servers")).json()["servers"]}
    if servers["time"]["state"] != "ready":
        pytest.skip(f"uvx mcp-server-time cannot be started: {servers['time']}")
    now = Call("time_get_current_time", {"timezone": "Asia/Tokyo"})
    model = ScriptedModel(OpenAiResponses(), [[now, ADD], DONE])
    await run(hub, model, "curl_agent.sh")
    time, _ = results(model.provider, model.requests[-1])
    assert json.loads(time["output"])["timezone"] == "Asia/Tokyo"


@pytest.mark.proof
@pytest.mark.parametrize("example", [*reversed(AGENTS), *SEARCHES])
async def test_agent_asks_again_while_calls_still_run(hub: Hub, tmp_path: Path, example: str) -> None:
    """As it stands in the example, it waits for a minute at first."""
    impatient = tmp_path / example
    impatient.write_text((EXAMPLES / example).read_text().replace("wait=60", "wait=0"))
    provider, search = SEARCHES.get(example) or (AGENTS[example], None)
    searches: list[Turn] = [[Call(search, {"query": "count down to zero"})]] if search else []
    model = ScriptedModel(provider(), [*searches, [COUNT], DONE])
    await run(hub, model, impatient, tmp_path)
    assert LIFT_OFF in json.dumps(results(model.provider, model.requests[-1])).replace("\\", "").replace(" ", "")


@pytest.mark.first(1)
@pytest.mark.parametrize("example", [*reversed(SEARCHES)])
async def test_model_calls_a_deferred_tool_once_the_hub_has_found_it(hub: Hub, example: str) -> None:
    provider, search = SEARCHES[example]
    turns: list[Turn] = [[Call(search, {"query": "add two numbers"})], [ADD, Call(search, {"query": ""})], DONE]
    model = ScriptedModel(provider(), turns)
    assert "It is done." in await run(hub, model, example)
    sent = [tool for tool in functions_of(model.requests[0]["tools"]) if not tool.get("defer_loading")]
    assert len(sent) == 1, "the model saw more than the search"
    *_, result = results(model.provider, model.requests[-1])
    assert (result.get("output") or result["content"][0]["text"]) == "42.0"


async def test_model_that_only_writes_text_has_its_calls_made(hub: Hub) -> None:
    unknown = Call("no_such_tool", {})
    calls = [{"name": name, "arguments": arguments} for name, arguments in (ADD, NO_BARS, unknown)]
    text = "Let me see." + "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    model = ScriptedModel(OpenAiChat(), [[text], DONE])
    assert await run(hub, model, "prompted_agent.py") == ["Let me see.", "It is done.", ""]
    *_, written, answered = model.requests[-1]["messages"]
    assert written["content"] == text
    found = re.findall(r"<tool_response>\n?(.*?)\n?</tool_response>", answered["content"], re.DOTALL)
    assert len(found) == 3 and "42.0" in found[0] and REFUSAL in found[1] and "no_such_tool" in found[2]


@pytest.mark.proof
async def test_images_of_a_tool_are_written_to_files_and_shown_to_the_model(
    hub: Hub, image: str, tmp_path: Path
) -> None:
    model = ScriptedModel(Gemini(), [[ADD, BARS], DONE])
    assert await run(hub, model, "image_agent.py", tmp_path) == ["> wrote image-1.png", "It is done.", ""]
    assert (tmp_path / "image-1.png").read_bytes() == base64.b64decode(image)
    assert results(model.provider, model.requests[-1]) == expected(model.provider, image)[:2]


@pytest.mark.proof
async def test_agent_uses_a_remote_server_by_its_url() -> None:
    model = ScriptedModel(
        Anthropic(),
        [[Call("remote_echo", {"text": "far"}), Call("remote_tool_error", {"text": "bad"}), Call("none", {})], DONE],
    )
    async with HttpUpstream(era="modern") as server:
        command = [sys.executable, str(EXAMPLES / "remote_agent.py"), server.url, "What now?"]
        assert await printed(command, model) == ["", "It is done.", ""]
    echo, error, none = results(model.provider, model.requests[-1])
    assert json.loads(echo["content"][0]["text"]) == {"text": "far"}
    assert error["content"][0]["text"] == "bad" and "none" in none["content"][0]["text"]
    assert [result.get("is_error", False) for result in (echo, error, none)] == [False, True, True]


async def shown(hub: Hub, *cut: str, origin: str = PAGE) -> list[list[str]]:
    """The lines of the page when its button was pressed, by words."""
    fields = {"hub": hub.url.removesuffix("/mcp"), "tool": COUNT.name, "arguments": json.dumps(COUNT.arguments)}
    harness = Path(__file__).with_name("browser.mjs")
    command = [str(node()), str(harness), str(EXAMPLES / "browser.html"), origin, json.dumps(fields), *cut]
    with anyio.fail_after(LIMIT):
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return [line.split(" ", 2) for line in done.stdout.decode().splitlines()]


@pytest.mark.parametrize("cut", [(), ("600",)], ids=["whole", "the connection is lost"])
async def test_page_in_a_browser_reads_the_events_of_a_call(hub: Hub, cut: tuple[str, ...]) -> None:
    lines = await shown(hub, *cut)
    assert [f"{seq} {kind}" for seq, kind, _ in lines] == [
        "1 start", "2 progress", "3 delta", "4 progress", "5 delta", "6 end",
    ]  # fmt: skip
    assert json.loads(lines[-1][2])["result"]["structuredContent"] == json.loads(LIFT_OFF)


async def test_page_of_another_origin_reads_nothing(hub: Hub) -> None:
    assert await shown(hub, origin="http://other.example") == [["TypeError:", "the", "preflight was refused"]]
