"""Tools that answer by themselves: contents of every type, errors, progress, logs, list changes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
import mcp_types as types

from rigs.conformance.server.asking import text
from rigs.conformance.server.instance import Context, Instance, Result
from rigs.conformance.server.surface import AUDIO, IMAGE, WATCHED

Run = Callable[[Instance, Context, types.CallToolRequestParams], Awaitable[Result]]

STEP = 0.05
"""Seconds between two notifications, so that a client can see them one by one."""

# every keyword of SEP-1613 and SEP-2106 that must survive the way to the client
SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Tool:
    """A definition and what it does."""

    definition: Result
    run: Run

    @property
    def name(self) -> str:
        name: str = self.definition["name"]
        return name


def tool(name: str, description: str, run: Run, schema: Result | None = None, **properties: Result) -> Tool:
    """A tool whose schema has these properties, all required, or is `schema`."""
    own: Result = {"type": "object", "properties": properties}
    if properties:
        own["required"] = list(properties)
    return Tool({"name": name, "description": description, "inputSchema": schema or own}, run)


def _fixed(result: Result) -> Run:
    async def run(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        return result

    return run


def _contents(*contents: Result) -> Run:
    return _fixed({"content": list(contents)})


def _embedded(uri: str, mime_type: str, body: str) -> Result:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": body}}


async def _logging(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await instance.log(context, "info", message)
        await anyio.sleep(STEP)
    return text("logged three messages")


async def _progress(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"{done} of 100")
        await anyio.sleep(STEP)
    return text("made progress")


async def _reconnection(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    """End the answer's stream before the result is in it: the client has to come back for it (SEP-1699)."""
    if context.close_sse_stream is not None:
        await context.close_sse_stream()
    await anyio.sleep(2 * STEP)
    return text("found again")


def _changes(kind: str) -> Run:
    async def run(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        await instance.change_list(context, kind)
        return text(f"changed the list of {kind}")

    return run


async def _update(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    await instance.update_resource(WATCHED)
    return text(f"updated {WATCHED}")


PICTURE: Result = {"type": "image", "data": IMAGE, "mimeType": "image/png"}

PLAIN_TOOLS = [
    tool("test_simple_text", "Answers with text.", _fixed(text("This is a simple text response for testing."))),
    tool("test_image_content", "Answers with an image.", _contents(PICTURE)),
    tool(
        "test_audio_content",
        "Answers with sound.",
        _contents({"type": "audio", "data": AUDIO, "mimeType": "audio/wav"}),
    ),
    tool(
        "test_embedded_resource",
        "Answers with a resource.",
        _contents(_embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
    ),
    tool(
        "test_multiple_content_types",
        "Answers with text, an image and a resource.",
        _contents(
            {"type": "text", "text": "Multiple content types test:"},
            PICTURE,
            _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
    ),
    tool(
        "test_error_handling",
        "Always fails.",
        _fixed(text("This tool intentionally returns an error for testing", is_error=True)),
    ),
    tool("test_tool_with_logging", "Logs three messages.", _logging),
    tool("test_logging_tool", "Logs three messages.", _logging),
    tool("test_tool_with_progress", "Reports progress three times.", _progress),
    tool("test_reconnection", "Answers after it has closed its stream.", _reconnection),
    tool("test_trigger_tool_change", "Adds or removes a tool.", _changes("tools")),
    tool("test_trigger_prompt_change", "Adds or removes a prompt.", _changes("prompts")),
    tool("test_trigger_resource_update", "Updates the watched resource.", _update),
    tool(
        "test_x_mcp_header",
        "Has an argument that travels in a header.",
        _fixed(text("the header was right")),
        region={"type": "string", "description": "Where.", "x-mcp-header": "Region"},
    ),
    tool("json_schema_2020_12_tool", "Has a schema of many keywords.", _fixed(text("called")), SCHEMA_2020_12),
]
