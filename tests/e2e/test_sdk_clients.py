"""The Python SDK's own client, in every mode and over both transports, against upstreams of both eras."""

import json
import sys
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import PromptReference, ResourceTemplateReference, TextContent, TextResourceContents

from tests.e2e.client import Hub, running_hub, until
from tests.upstreams.launch import argv, events, received, servers_yaml

pytestmark = pytest.mark.anyio

FRONTS = ("stdio", "http")
MODES = ("legacy", "auto", "2026-07-28")
UPSTREAMS = ("h", "m")
ERAS = {"h": "handshake", "m": "modern"}
WAIT = 20


@dataclass
class Session:
    """A connected SDK client, what it logged, and where the upstreams write down what reaches them."""

    client: Client
    mode: str
    root: Path
    logs: list[Any] = field(default_factory=list)

    def journal(self, upstream: str) -> Path:
        return self.root / f"{upstream}.journal"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def config(root: Path) -> str:
    servers = {n: argv(name=n, era=era, journal=root / f"{n}.journal") for n, era in ERAS.items()}
    # where nobody ever gives a call up: for a while after that, log messages are withheld from everybody else
    calm = json.loads(servers_yaml({f"{n}_calm": argv(era=era) for n, era in ERAS.items()}))["servers"]
    quiet = {"tools": {"allow": ["log"]}, "resources": {"deny": ["*"]}, "prompts": {"deny": ["*"]}}
    settings = json.loads(servers_yaml(servers))
    settings["servers"] |= {name: {**server, **quiet} for name, server in calm.items()}
    return json.dumps(settings)


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, Path]]:
    root = tmp_path_factory.mktemp("hub")
    async with running_hub(config(root), tmp_path=root, env={"MCP_HUB_STATE_DIR": str(root / "state")}) as running:
        yield running, root


@pytest.fixture(scope="module", params=[(f, m) for f in FRONTS for m in MODES], ids=lambda param: "-".join(param))
async def session(
    request: pytest.FixtureRequest, hub: tuple[Hub, Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Session]:
    front, mode = request.param
    logs: list[Any] = []

    async def log(params: Any) -> None:
        logs.append(params)

    running, root = hub
    server: str | StdioServerParameters = running.url
    if front == "stdio":
        root = tmp_path_factory.mktemp("stdio")
        (root / "servers.yaml").write_text(config(root))
        args = ["-m", "mcp_hub", "serve", "--client", "mcp-hub", "--config", str(root / "servers.yaml")]
        server = StdioServerParameters(command=sys.executable, args=args, env={"MCP_HUB_STATE_DIR": str(root / "s")})
    client = Client(server, mode=mode, logging_callback=log, log_level="warning", read_timeout_seconds=WAIT)
    with anyio.fail_after(4 * WAIT):
        async with client:
            if mode == "legacy":
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # deprecated by the newest revision, not for this client
                    await client.set_logging_level("warning")
            await client.list_tools()
            yield Session(client, mode, root, logs)


def text_of(result: Any) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_client_and_hub_settle_on_the_era_that_the_mode_asks_for(session: Session) -> None:
    version = session.client.protocol_version
    assert version == ("2025-11-25" if session.mode == "legacy" else "2026-07-28")
    if session.mode != "2026-07-28":  # a pinned version is adopted without asking
        assert session.client.server_info is not None
        assert session.client.server_info.name == "mcp-hub"
        assert session.client.instructions is not None
        assert "h" in session.client.instructions


async def test_every_kind_of_both_upstreams_is_listed(session: Session) -> None:
    client = session.client
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    resources = {str(resource.uri) for resource in (await client.list_resources()).resources}
    templates = {template.uri_template for template in (await client.list_resource_templates()).resource_templates}
    prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
    for name in UPSTREAMS:
        assert tools[f"{name}_echo"].title == "Echo"
        assert tools[f"{name}_echo"].annotations is not None
        assert {f"test://{name}/readme", f"test://{name}/blob"} <= resources
        assert f"test://{name}/item/{{id}}" in templates
        assert {f"{name}_greet", f"{name}_fixed"} <= prompts
    assert "test://shared/info" in resources
    assert len(resources) == 6  # both have the shared one, under two URIs


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_tools_prompts_resources_and_completions_answer(session: Session, upstream: str) -> None:
    client = session.client
    echoed = await client.call_tool(f"{upstream}_echo", {"text": "hi ✓"})
    assert echoed.structured_content == {"text": "hi ✓"}
    assert not echoed.is_error
    failed = await client.call_tool(f"{upstream}_tool_error", {"text": "no"})
    assert failed.is_error
    assert text_of(failed) == "no"
    greeting = await client.get_prompt(f"{upstream}_greet", {"who": "you"})
    assert greeting.messages[0].content == TextContent(type="text", text=f"Hello, you, from {upstream}")
    for uri, text in ((f"test://{upstream}/readme", f"This is {upstream}."),
                      (f"test://{upstream}/item/7", f"item 7 of {upstream}")):  # fmt: skip
        (contents,) = (await client.read_resource(uri)).contents
        assert isinstance(contents, TextResourceContents)
        assert (str(contents.uri), contents.text) == (uri, text)
    prompt = PromptReference(type="ref/prompt", name=f"{upstream}_greet")
    assert (await client.complete(prompt, {"name": "who", "value": "bo"})).completion.values == ["bob", "boris"]
    template = ResourceTemplateReference(type="ref/resource", uri=f"test://{upstream}/item/{{id}}")
    assert (await client.complete(template, {"name": "id", "value": "2"})).completion.values == ["2", "20"]


async def test_every_listed_resource_can_be_read_even_where_both_have_its_uri(session: Session) -> None:
    texts = []
    for resource in (await session.client.list_resources()).resources:
        (contents,) = (await session.client.read_resource(resource.uri)).contents
        texts.append(contents.text if isinstance(contents, TextResourceContents) else "blob")
    assert sorted(texts) == ["This is h.", "This is m.", "blob", "blob", "info from h", "info from m"]


async def test_contents_carry_the_uri_that_was_read(session: Session) -> None:
    """The URIs in results go through the same map as those in lists."""
    for resource in (await session.client.list_resources()).resources:
        (contents,) = (await session.client.read_resource(resource.uri)).contents
        assert str(contents.uri) == str(resource.uri)


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_two_thousand_progress_notifications_all_arrive_in_order(session: Session, upstream: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    n = 2000
    result = await session.client.call_tool(
        f"{upstream}_progress", {"n": n, "nonce": "p"}, progress_callback=on_progress
    )
    assert result.content
    await until(lambda: len(seen) >= n)  # the SDK runs callbacks as tasks of their own, some after the result
    assert seen == [(i, n, f"p {i}") for i in range(1, n + 1)]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_cancelled_call_is_cancelled_upstream(session: Session, upstream: str) -> None:
    nonce = f"{session.mode}-{upstream}"
    journal = session.journal(upstream)

    def arrived(nonce: str) -> list[Any]:
        calls = received(journal, "tools/call")
        return [call for call in calls if call["params"].get("arguments", {}).get("nonce") == nonce]

    async def call() -> None:
        await session.client.call_tool(f"{upstream}_wait_cancel", {"nonce": nonce})
        raise AssertionError("a cancelled call was answered")

    before = len(arrived(nonce))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until(lambda: len(arrived(nonce)) > before)
        tasks.cancel_scope.cancel()
    await until(lambda: len([e for e in events(journal, "cancelled") if e["nonce"] == nonce]) > before)
    echoed = await session.client.call_tool(f"{upstream}_echo", {"text": "after"})
    assert echoed.structured_content == {"text": "after"}


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_log_messages_of_the_wanted_level_arrive(session: Session, upstream: str) -> None:
    nonce = f"log of {session.mode} {upstream}"
    logs = session.logs
    for level in ("info", "error"):
        arguments = {"level": level, "data": {"nonce": nonce, "level": level}, "logger": "db"}
        await session.client.call_tool(f"{upstream}_calm_log", arguments)
    found: list[Any] = []

    def arrived() -> bool:
        found[:] = [p for p in logs if isinstance(p.data, dict) and p.data.get("nonce") == nonce]
        return bool(found)

    await until(arrived, 5)
    assert [(p.level, p.logger, p.data["level"]) for p in found] == [("error", "db", "error")]


@pytest.mark.parametrize("upstream", UPSTREAMS)
async def test_errors_arrive_with_code_message_and_data(session: Session, upstream: str) -> None:
    for code in (-32050 if session.mode == "legacy" else -31000, 1, -32603, 4242):
        with pytest.raises(MCPError) as caught:
            arguments = {"code": code, "message": f"no {code}", "data": {"deep": [1, None]}}
            await session.client.call_tool(f"{upstream}_error", arguments)
        error = caught.value.error
        assert (error.code, error.message, error.data) == (code, f"no {code}", {"deep": [1, None]})


async def test_unknown_names_are_invalid_params(session: Session) -> None:
    with pytest.raises(MCPError) as caught:
        await session.client.call_tool("h_ehco", {})
    assert caught.value.error.code == -32602
    assert "h_echo" in caught.value.error.message
    with pytest.raises(MCPError) as caught:
        await session.client.get_prompt("nobody", {})
    assert caught.value.error.code == -32602
    with pytest.raises(MCPError) as caught:
        await session.client.read_resource("test://nowhere/at/all")
    assert caught.value.error.code == (-32002 if session.mode == "legacy" else -32602)
