"""Tools that the scenarios of the tasks extension ask for. None of them knows of tasks: what makes them is a hub.

A tool that asks waits a moment before, so that the call can have become a task; `test_tool_with_task` asks at once.
"""

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from rigs.conformance.server.asking import Answers, Dialogue, converse, elicitation, text
from rigs.conformance.server.instance import Context, Instance, Result
from rigs.conformance.server.tools import tool

MOMENT = 1.0
"""Seconds: longer than it takes a hub to make a task at once."""
LONG = 3.0
"""Seconds: longer than a hub of these tests lets a call run before it becomes a task."""

STRING = {"type": "string"}
CONFIRM = {"confirm": {"type": "boolean"}}


async def _greet(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    return text(f"Hello, {(params.arguments or {})['name']}!")


async def _compute(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    arguments = params.arguments or {}
    await anyio.sleep(arguments["seconds"])
    return text(f"computed {arguments['label']}")


async def _fail(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    await anyio.sleep(MOMENT)
    return text("the job failed", is_error=True)


async def _break(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    await anyio.sleep(MOMENT)
    raise MCPError(types.INTERNAL_ERROR, "the job broke")


async def _confirm(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    await anyio.sleep(MOMENT)
    return await converse(context, params, DELETION)


async def _ask_twice(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    await anyio.sleep(MOMENT)
    return await converse(context, params, TWO)


async def _ask_then_work(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    result = await converse(context, params, NAME)
    if "content" in result:
        await anyio.sleep(LONG)
    return result


def _deleted(answers: Answers) -> Result:
    return text(f"deleted: {answers['confirm'].get('content', {}).get('confirm')}")


def _named(answers: Answers) -> Result:
    return text(f"worked for {answers['user_name'].get('content', {}).get('name')}")


DELETION = Dialogue(
    _deleted, (lambda arguments: {"confirm": elicitation(f"Delete {arguments['filename']}?", CONFIRM, ["confirm"])},)
)
TWO = Dialogue(
    lambda answers: text(f"answered: {', '.join(sorted(answers))}"),
    (
        lambda _: {
            "first": elicitation("The first?", {"name": STRING}),
            "second": elicitation("The second?", {"name": STRING}),
        },
    ),
)
NAME = Dialogue(_named, (lambda _: {"user_name": elicitation("What is your name?", {"name": STRING}, ["name"])},))

JOB_TOOLS = [
    tool("greet", "Says hello.", _greet, {"type": "object", "properties": {"name": STRING}, "required": ["name"]}),
    tool("slow_compute", "Takes its time.", _compute, seconds={"type": "number"}, label=STRING),
    tool("failing_job", "Fails after a moment.", _fail),
    tool("protocol_error_job", "Ends with a protocol error.", _break),
    tool("confirm_delete", "Asks before it goes on.", _confirm, filename=STRING),
    tool("multi_input", "Asks two things at once.", _ask_twice),
    tool("test_tool_with_task", "Asks, then takes long.", _ask_then_work),
]
