"""The client that the suite's client scenarios run: a hub over stdio whose one upstream is the suite's server.

`python -m rigs.conformance.client URL` lists what the hub shows in the era of `MCP_CONFORMANCE_PROTOCOL_VERSION`, calls
each tool whose arguments it knows (or those of `MCP_CONFORMANCE_CONTEXT`), reads each resource, gets each prompt, and
answers elicitations with the defaults of their schema.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio

from tests.interaction.fronts import stdio_hub
from tests.upstreams.messages import MODERN_VERSION, Message, Params, modern
from tests.upstreams.stdio_client import StdioClient

CAPABILITIES: dict[str, Any] = {"elicitation": {}}
FIRST_LIST = 10
"""Seconds that the first list waits for the upstream."""

Call = tuple[str, Message]


class Walk:
    """One client going through a hub."""

    def __init__(self, client: StdioClient, version: str) -> None:
        self._client = client
        self._version = version

    async def request(self, method: str, params: Params = None) -> Message:
        """The result, or an empty one for an error, which is shown: what it means is for the suite to say."""
        body = modern(params, capabilities=CAPABILITIES) if self._version == MODERN_VERSION else params
        answer = await self._client.request(method, body)
        if "error" in answer:
            print(f"{method} {json.dumps(params)}: {json.dumps(answer['error'])}", file=sys.stderr)
        result: Message = answer.get("result", {})
        return result

    async def everything(self, calls: list[Call] | None) -> None:
        tools = (await self.request("tools/list"))["tools"]
        for uri in [each["uri"] for each in (await self.request("resources/list")).get("resources", [])]:
            await self.request("resources/read", {"uri": uri})
        for name in [each["name"] for each in (await self.request("prompts/list")).get("prompts", [])]:
            await self.request("prompts/get", {"name": name})
        await self._call_all(known_calls(tools) if calls is None else calls)

    async def _call_all(self, calls: list[Call]) -> None:
        """Call each; only when all were called go on with those that asked, so that their rounds overlap."""
        asked: list[tuple[Message, Message]] = []
        for name, arguments in calls:
            params = {"name": name, "arguments": arguments}
            result = await self.request("tools/call", params)
            if result.get("resultType") == "input_required":
                asked.append((params, result))
        for params, result in asked:
            answers = {key: answer_to(question) for key, question in result["inputRequests"].items()}
            state = {"requestState": result["requestState"]} if "requestState" in result else {}
            await self.request("tools/call", {**params, "inputResponses": answers, **state})

    async def answer_questions(self) -> None:
        """Answer what the server asks on a handshake connection, until cancelled."""
        position = 0
        while True:
            question = await self._client.wait_for(is_question, after=position, seconds=60)
            position = self._client.transcript.index(question, position) + 1
            await self._client.respond(question["id"], answer_to(question))


def is_question(message: Message) -> bool:
    return "method" in message and "id" in message


def known_calls(tools: list[Message]) -> list[Call]:
    """The tools that need no arguments, and those whose arguments we know."""
    schemas = {each["name"]: each["inputSchema"] for each in tools}
    known: dict[str, Message] = {
        "add_numbers": {"a": 5, "b": 3},
        "valid_tool": {"region": "us-west1"},
        "json_schema_echo": {"schema": schemas.get("json_schema_2020_12_tool")},
    }
    needy = {name for name, schema in schemas.items() if schema.get("required") and name not in known}
    return [(name, known.get(name, {})) for name in schemas if name not in needy]


def answer_to(question: Message) -> Message:
    """An accepted form with the defaults of its schema (SEP-1034), and true where there is none."""
    assert question["method"] == "elicitation/create", question
    properties: Message = question["params"]["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: each.get("default", True) for name, each in properties.items()}}


async def go(client: StdioClient, version: str, calls: list[Call] | None) -> None:
    walk = Walk(client, version)
    if version == MODERN_VERSION:
        await walk.everything(calls)
        return
    await client.initialize(version, CAPABILITIES)
    async with anyio.create_task_group() as answering:
        answering.start_soon(walk.answer_questions)
        await walk.everything(calls)
        answering.cancel_scope.cancel()


async def main(url: str) -> int:
    version = os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls")
    calls = None if given is None else [(each["name"], each["arguments"]) for each in given]
    hub = {"prefix": "never", "first_list_wait": FIRST_LIST}
    config = json.dumps({"hub": hub, "servers": {"suite": {"url": url}}})
    with tempfile.TemporaryDirectory() as folder:
        async with stdio_hub(config, Path(folder)) as client:
            try:
                await go(client, version, calls)
                code = await client.close()
            finally:
                print(client.stderr, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1]))
