"""What is withdrawn while a script runs: its next call of that tool is not made, and the script is told why."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.reloads import CHANGED, File, applied, begun
from tests.interaction.fronts import HANDSHAKE, Peer, stdio_session
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import received
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed"),
]

SCRIPT = """
async def tried(call):
    try:
        return await call
    except ToolError as error:
        return ["ToolError", error.code, str(error)]
    except PermissionError as error:
        return ["PermissionError", None, str(error)]

first = await shop_raw(json={before!r})
await bank_progress(n=1, nonce="gate", gate={gate!r})
{{"first": first, "second": await tried(shop_raw(json={after!r})), "third": await tried(bank_echo(text="and on"))}}
"""
BEFORE, AFTER = [json.dumps({"content": [{"type": "text", "text": word}]}) for word in ("before", "after")]
Withdraw = Callable[[File, StdioClient], Awaitable[object]]


@asynccontextmanager
async def at_the_gate(file: File, *args: str) -> AsyncIterator[tuple[StdioClient, list[Message]]]:
    """A client whose script has called the tool once and waits; what it is answered once `gate` is there."""
    gate = file.root / "gate"
    async with stdio_session(file.text, file.root, *args) as client:
        await until(lambda: client.stderr.count('"upstream_ready"') >= len(file.servers))
        await client.request("tools/list")
        async with anyio.create_task_group() as tasks:
            answers = begun(tasks, client, "run_code", code=SCRIPT.format(before=BEFORE, after=AFTER, gate=str(gate)))
            await until(lambda: called(file, "bank", "progress"))
            yield client, answers
            gate.touch()
            await until(lambda: answers)


def called(file: File, server: str, tool: str) -> list[Any]:
    calls = received(file.root / f"{server}.journal", "tools/call")
    return [call["params"]["arguments"] for call in calls if call["params"]["name"] == tool]


def site(root: Path, **hub: Any) -> File:
    file = File(root, "shop", "bank", code="all", **hub)
    file.more = {"defaults": {"approval": "block"}, "profiles": {"small": {"tools": {"deny": ["none_*"]}}}}
    return file


async def changed(file: File, client: StdioClient) -> None:
    """The server says something else of its tool, which nobody has approved."""
    listed = (await client.request("tools/list"))["result"]["tools"]
    raw = next(tool for tool in listed if tool["name"] == "shop_raw")
    after = len(client.transcript)
    await Peer(client, HANDSHAKE).call("shop_add_tool", {**raw, "name": "raw", "description": "Echoes elsewhere, too."})
    with anyio.fail_after(WAIT):
        await client.wait_for(lambda message: message.get("method") == CHANGED, after=after)


async def filtered(file: File, client: StdioClient) -> None:
    file.servers["shop"]["tools"] = {"deny": ["raw"]}
    await applied(file, client)


async def out_of_the_profile(file: File, client: StdioClient) -> None:
    file.more["profiles"]["small"]["tools"] = {"deny": ["shop_raw"]}
    await applied(file, client)


async def server_removed(file: File, client: StdioClient) -> None:
    del file.servers["shop"]
    await applied(file, client)


async def only_reads(file: File, client: StdioClient) -> None:
    file.hub["code"] = "reads"
    await applied(file, client)


async def only_reads_in_the_profile(file: File, client: StdioClient) -> None:
    file.more["profiles"]["small"]["code"] = "reads"
    await applied(file, client)


async def switched_off(file: File, client: StdioClient) -> None:
    file.hub["code"] = "off"
    await applied(file, client)


GONE = ("ToolError", "tool_removed", "Tool shop_raw is no longer offered")
READS = ("PermissionError", None, "hub.code is `reads`")
CASES: dict[Withdraw, tuple[str, str | None, str]] = {
    changed: ("ToolError", "not_approved", "Tool shop_raw has changed since it was approved (description)"),
    filtered: GONE,
    out_of_the_profile: GONE,
    server_removed: GONE,
    only_reads: READS,
    only_reads_in_the_profile: READS,
    switched_off: ("PermissionError", None, "hub.code is off now"),
}


@pytest.mark.parametrize("withdraw", CASES, ids=lambda case: case.__name__)
async def test_next_call_of_what_was_withdrawn_is_refused_by_name(tmp_path: Path, withdraw: Withdraw) -> None:
    file = site(tmp_path)
    async with at_the_gate(file, "--profile", "small") as (client, answers):
        await withdraw(file, client)
        assert not answers
    value = answers[0]["result"]["structuredContent"]
    kind, code, words = CASES[withdraw]
    assert value["first"] == "before"
    assert value["second"][:2] == [kind, code] and words in value["second"][2], value
    assert "\n" not in value["second"][2], "a sentence"
    assert [arguments["json"] for arguments in called(file, "shop", "raw")] == [BEFORE]
    assert (value["third"] == {"text": "and on"}) is (withdraw is not switched_off), value
