"""The section of a prompt that describes tools, and results as text."""

import json
from typing import Any

import pytest

from mcp_hub.formats.prompted import FORMATS, error_text, result_text, tool_section
from mcp_hub.formats.prompted.prompt import signature
from tests.captured import captured, needs_lists
from tests.unit.formats.prompted_texts import TOOLS, parsed, short


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


@pytest.mark.parametrize("format", FORMATS)
def test_the_section_lists_every_tool_with_its_schema_and_an_example(format: str) -> None:
    section = tool_section(FORMATS[format], TOOLS)
    listed = [json.loads(line)["function"] for line in section.splitlines() if line.startswith('{"type"')]
    assert [(one["name"], one["parameters"]) for one in listed] == [
        (tool["name"], tool["inputSchema"]) for tool in TOOLS
    ]
    assert FORMATS[format].call("example_tool", {"text": "two words", "count": 2}) in section
    assert FORMATS[format].rule in section


def test_without_tools_there_is_no_section() -> None:
    assert tool_section(FORMATS["hermes"], []) == ""


def test_the_example_never_names_a_tool() -> None:
    section = tool_section(FORMATS["hermes"], [{"name": "example_tool"}, {"name": "example_tool_2"}])
    assert '"name": "example_tool_3"' in section


def test_a_signature_has_types_and_descriptions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Its\nname"},
            "days": {"type": ["integer", "null"], "default": 3},
            "units": {"enum": ["c", "f"]},
            "at": {"$ref": "#/$defs/point"},
            "more": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/point"}]}},
            "any": {},
        },
        "required": ["city"],
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    }
    assert signature({"name": "get", "description": "Gets\n it.", "inputSchema": schema}) == (
        '- get(city: string, days?: integer | null = 3, units?: "c" | "f", at?: {x: number}, '
        "more?: (string | {x: number})[], any?: any): Gets it.\n- - city: Its name"
    )
    assert signature({"name": "now"}) == "- now()"


def test_a_signature_of_a_schema_that_repeats_itself_ends() -> None:
    properties = {f"p{number}": {"$ref": "#"} for number in range(100)}
    line = signature({"name": "x", "inputSchema": {"type": "object", "properties": properties}})
    assert line.startswith("- x(p0?: {p0?: {p0?: ") and line.endswith("…)") and len(line) < 30_000


@pytest.mark.parametrize("schema", [None, [], "x", {"properties": []}, {"properties": {"a": 1}, "required": {"a": 1}}])
@pytest.mark.parametrize("style", ["schemas", "signatures"])
def test_definitions_that_are_wrong_are_described_all_the_same(schema: Any, style: Any) -> None:
    tool = {"name": "x", "inputSchema": schema}
    assert "x" in tool_section(FORMATS["hermes"], [tool], style=style)


@needs_lists
@pytest.mark.parametrize("style", ["schemas", "signatures"])
@pytest.mark.parametrize("format", FORMATS)
def test_captured_tools_are_described_without_becoming_calls(format: str, style: Any) -> None:
    tools = [tool for tools in captured().values() for tool in tools]
    section = tool_section(FORMATS[format], tools, style=style)
    assert all(tool["name"] in section for tool in tools)
    calls = [event for event in short(parsed(format, section, tools=tools)) if isinstance(event, tuple)]
    assert [code for _, code in calls] == ["unknown_tool"]


RESULTS = {
    "function_call": '<function_result>\n{"name": "now", "content": "a\\n\\u003ctool_call>"}\n</function_result>',
    "hermes": '<tool_response>\n{"name": "now", "content": "a\\n\\u003ctool_call>"}\n</tool_response>',
    "qwen3-coder": "<tool_response>\na\n&lt;tool_call>\n</tool_response>",
    "llama": '{"output": "a\\n\\u003ctool_call>"}',
    "pythonic": '{"output": "a\\n\\u003ctool_call>"}',
    "mistral": '[TOOL_RESULTS]{"name": "now", "content": "a\\n\\u003ctool_call>"}[/TOOL_RESULTS]',
    "glm": "<tool_response>\na\n&lt;tool_call>\n</tool_response>",
    "deepseek": "<｜tool▁output▁begin｜>a\n&lt;tool_call><｜tool▁output▁end｜>",
    "kimi": "## Return of functions.now:2\na\n&lt;tool_call>",
}


def test_a_result_is_written_as_its_format_has_it() -> None:
    found = {name: result_text(format, "now", text_result("a\n<tool_call>"), 2) for name, format in FORMATS.items()}
    assert found == RESULTS


@pytest.mark.parametrize("format", FORMATS)
def test_an_error_is_marked(format: str) -> None:
    text = error_text(FORMATS[format], "now", "Too late.")
    assert ("error" in text or "Error: " in text) and "Too late." in text
    assert text == result_text(FORMATS[format], "now", text_result("Too late.", isError=True))


def test_content_that_is_not_text_is_named() -> None:
    content = [
        {"type": "text", "text": "See:"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
        {"type": "new", "x": 1},
    ]
    assert result_text(FORMATS["kimi"], "now", {"content": content}).splitlines()[1:] == [
        "See:",
        "(image of type image/png, which cannot be shown as text)",
        "(audio of type audio/wav, which cannot be shown as text)",
        "inside",
        "(resource file:///b, which cannot be shown as text)",
        "(resource file:///c)",
        '{"type": "new", "x": 1}',
    ]


def test_a_structured_result_without_content_is_shown() -> None:
    assert '{"output": "{\\"a\\": 1}"}' == result_text(FORMATS["llama"], "now", {"structuredContent": {"a": 1}})
