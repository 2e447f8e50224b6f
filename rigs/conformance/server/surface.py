"""Prompts, resources, templates and completions that the suite's scenarios ask for."""

import json
import re

import mcp_types as types
from mcp.shared.exceptions import MCPError

from rigs.conformance.server.asking import Answers, Dialogue, converse, elicitation
from rigs.conformance.server.instance import Context, Instance, Result, is_modern
from rigs.conformance.server.skills import FILES

# one red pixel, and no sample at all: the smallest files that are what they claim
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
AUDIO = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="

RESOURCE_NOT_FOUND = -32002
WATCHED = "test://watched-resource"
TEMPLATE = re.compile(r"test://template/([^/]+)/data")

RESOURCES = [
    {"uri": "test://static-text", "name": "static-text", "description": "Some text.", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "static-binary", "description": "An image.", "mimeType": "image/png"},
    {"uri": WATCHED, "name": "watched", "description": "A text to subscribe to.", "mimeType": "text/plain"},
]
TEMPLATES = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "data",
        "description": "Data of one id.",
        "mimeType": "application/json",
    }
]


async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> Result:
    """The contents of a URI. Raises: `MCPError` with the code of the era (SEP-2164) when there are none."""
    uri = str(params.uri)
    if uri in FILES:
        return _contents(uri, "text/markdown", text=FILES[uri])
    texts = {"test://static-text": "This is the content of the static text resource.", WATCHED: "Watched content."}
    if uri in texts:
        return _contents(uri, "text/plain", text=texts[uri])
    if uri == "test://static-binary":
        return _contents(uri, "image/png", blob=IMAGE)
    if match := TEMPLATE.fullmatch(uri):
        data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
        return _contents(uri, "application/json", text=json.dumps(data))
    code = types.INVALID_PARAMS if is_modern(context) else RESOURCE_NOT_FOUND
    raise MCPError(code, "Resource not found", {"uri": uri})


def _contents(uri: str, mime_type: str, **body: str) -> Result:
    return {"contents": [{"uri": uri, "mimeType": mime_type, **body}]}


def _prompt(name: str, description: str, *arguments: str) -> Result:
    described = [{"name": each, "description": f"The {each}.", "required": True} for each in arguments]
    return {"name": name, "description": description, **({"arguments": described} if described else {})}


PROMPTS = [
    _prompt("test_simple_prompt", "A prompt without arguments."),
    _prompt("test_prompt_with_arguments", "A prompt with two arguments.", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "A prompt around a resource.", "resourceUri"),
    _prompt("test_prompt_with_image", "A prompt around an image."),
    _prompt("test_input_required_result_prompt", "A prompt that asks for its context."),
]


def prompts(instance: Instance) -> list[Result]:
    extra = [_prompt("test_extra_prompt", "Comes and goes.")] if "prompts" in instance.changed else []
    return [*PROMPTS, *extra]


async def get_prompt(context: Context, params: types.GetPromptRequestParams) -> Result:
    """The messages of a prompt. Raises: `MCPError` -32602 for an unknown one or a missing argument."""
    if params.name == "test_input_required_result_prompt":
        return await converse(context, params, CONTEXT)
    arguments = params.arguments or {}
    try:
        contents = _prompt_contents(params.name, arguments)
    except KeyError as missing:
        raise MCPError(types.INVALID_PARAMS, f"unknown prompt or missing argument: {missing}") from None
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def _prompt_contents(name: str, arguments: dict[str, str]) -> list[Result]:
    if name in ("test_simple_prompt", "test_extra_prompt"):
        return [_text("This is a simple prompt for testing.")]
    if name == "test_prompt_with_arguments":
        return [_text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]
    if name == "test_prompt_with_image":
        image = {"type": "image", "data": IMAGE, "mimeType": "image/png"}
        return [image, _text("Please analyze the image above.")]
    if name == "test_prompt_with_embedded_resource":
        embedded = {"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content."}
        return [{"type": "resource", "resource": embedded}, _text("Please process the embedded resource above.")]
    raise KeyError(name)


def _text(text: str) -> Result:
    return {"type": "text", "text": text}


def _with_context(answers: Answers) -> Result:
    given = answers["user_context"].get("content", {}).get("context", "none")
    return {"messages": [{"role": "user", "content": _text(f"Use this context: {given}")}]}


CONTEXT = Dialogue(
    _with_context,
    (
        lambda _: {
            "user_context": elicitation(
                "What context should the prompt use?", {"context": {"type": "string"}}, ["context"]
            )
        },
    ),
)


async def complete(context: Context, params: types.CompleteRequestParams) -> Result:
    """Known values that begin with what was typed; the same for every reference."""
    typed = params.argument.value
    values = [value for value in ("paris", "park", "party", "test-1", "test-2") if value.startswith(typed)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}
