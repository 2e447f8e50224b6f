"""The examples that join the MCP clients of agent frameworks to a hub, each in an environment that has the framework.

`make clients` installs them, and `python -m tests.e2e.test_framework_examples`; elsewhere the tests are skipped.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from rigs.clients.install import python_there, python_with
from tests.e2e.client import Hub
from tests.e2e.scripted_models import Call, OpenAiChat, OpenAiResponses, Provider, ScriptedModel, serving
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import JOBS

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS = 300
WORDS = Call("jobs_count_words", {"text": "one two three"})
CONFIG = json.dumps({"servers": {"jobs": JOBS}})


class Chat(OpenAiChat):
    """As `OpenAiChat`, of a client that writes what the model said in its own way."""

    def check(self, body: dict[str, Any]) -> None:
        assert WORDS.name in {tool["function"]["name"] for tool in body["tools"]}


class Responses(OpenAiResponses):
    """As `OpenAiResponses`, likewise."""

    def check(self, body: dict[str, Any]) -> None:
        assert WORDS.name in {tool["name"] for tool in body["tools"]}


FRAMEWORKS: dict[str, tuple[str, str, type[Provider]]] = {
    "langchain_agent.py": ("langchain-agent", "langchain-mcp-adapters>=0.3,<1 langchain[openai]>=1,<2", Chat),
    "openai_agents_agent.py": ("openai-agents", "openai-agents>=0.24,<1", Responses),
    "pydantic_ai_agent.py": ("pydantic-ai-agent", "pydantic-ai-slim[mcp,openai]>=2,<3", Chat),
}
"""Each example's environment, what it needs, and the API of its model."""


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with http_hub(CONFIG, tmp_path_factory.mktemp("frameworks")) as running:
        yield running


@pytest.mark.parametrize("example", FRAMEWORKS)
async def test_an_agent_of_a_framework_calls_a_tool_of_the_hub(hub: Hub, tmp_path: Path, example: str) -> None:
    name, requirement, provider = FRAMEWORKS[example]
    python = python_there(requirement, name)
    if python is None:
        pytest.skip("frameworks are not installed: python -m tests.e2e.test_framework_examples")
    (tmp_path / "servers.yaml").write_text(CONFIG)
    model = ScriptedModel(provider(), [[WORDS], ["It has three."]])
    with anyio.fail_after(SECONDS), serving(model) as keys:
        env = {
            **os.environ, **keys, "HUB_URL": hub.url.removesuffix("/mcp"), "HUB_CONFIG": str(tmp_path / "servers.yaml"),
            "MCP_HUB_STATE_DIR": str(tmp_path / "state"), "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }  # fmt: skip
        done = await anyio.run_process(
            [str(python), str(EXAMPLES / example), "How", "many?"], env=env, cwd=tmp_path, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().split("\n")[-2:] == ["It has three.", ""]
    given = json.dumps(model.requests[-1]).replace("\\", "")
    assert '"words": 3' in given or '"words":3' in given


if __name__ == "__main__":
    for name, requirement, _ in FRAMEWORKS.values():
        print(python_with(requirement, name))
