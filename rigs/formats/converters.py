"""Converters of tools: the hub's, and the helpers of providers' own packages, each from definition to schema."""

import copy
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anthropic import transform_schema
from google.genai import _mcp_utils
from mcp.types import Tool

from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.tools import export
from rigs.clients.install import NotInstalled, python_with

Json = dict[str, Any]
AGENTS = "openai-agents==0.24.0"


class Converted(NamedTuple):
    """Schemas of tools in their order, None where the converter crashed; which of them are to be enforced."""

    schemas: list[Json | None]
    strict: list[bool]
    seconds: float


class Converter(NamedTuple):
    """A converter by the name of its package; raises NotInstalled where that cannot be had."""

    name: str
    into: Format
    convert: Callable[[Sequence[Json]], Converted]


def ours(into: Format, is_strict: bool) -> Callable[[Sequence[Json]], Converted]:
    def convert(tools: Sequence[Json]) -> Converted:
        most = PROVIDERS[into].most_tools or len(tools)
        begun = time.process_time()
        bodies = [
            export(tools[at : at + most], into, is_strict=is_strict).body["tools"] for at in range(0, len(tools), most)
        ]
        seconds = time.process_time() - begun
        entries = [
            entry for body in bodies for entry in (body[0]["functionDeclarations"] if _is_gemini(into) else body)
        ]
        functions = [entry.get("function", entry) for entry in entries]
        schemas = [next(one[key] for key in _SCHEMA if key in one) for one in functions]
        return Converted(schemas, [bool(one.get("strict")) for one in functions], seconds)

    return convert


_SCHEMA = ("input_schema", "parameters", "parametersJsonSchema")


def _is_gemini(into: Format) -> bool:
    return into is Format.GEMINI


def _each(convert: Callable[[Json], Json], *, is_strict: bool) -> Callable[[Sequence[Json]], Converted]:
    def all_of(tools: Sequence[Json]) -> Converted:
        given = copy.deepcopy(list(tools))
        schemas: list[Json | None] = []
        begun = time.process_time()
        for tool in given:
            try:
                schemas.append(convert(tool))
            except Exception:  # a crash of theirs is a figure here
                schemas.append(None)
        return Converted(schemas, [is_strict] * len(given), time.process_time() - begun)

    return all_of


def _anthropic(tool: Json) -> Json:
    found: Json = transform_schema(tool["inputSchema"])
    return found


def _gemini(tool: Json) -> Json:
    definition = Tool.model_validate({"name": tool["name"], "inputSchema": tool["inputSchema"]})
    declared = (_mcp_utils.mcp_to_gemini_tool(definition).function_declarations or [])[0]
    schema = (
        declared.parameters.model_dump(mode="json", by_alias=True, exclude_none=True) if declared.parameters else {}
    )
    found: Json = _lowered(schema)
    return found


def _lowered(value: Any) -> Any:
    """A schema of Gemini's own dialect as JSON Schema."""
    if isinstance(value, list):
        return [_lowered(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {
        key: _lowered(one) for key, one in value.items() if key not in ("properties", "nullable", "propertyOrdering")
    }
    if "properties" in value:
        found["properties"] = {name: _lowered(one) for name, one in value["properties"].items()}
    if isinstance(found.get("type"), str):
        found["type"] = found["type"].lower()
    return {"anyOf": [found, {"type": "null"}]} if value.get("nullable") else found


_AGENTS_SCRIPT = """
import json, sys, time
from agents.strict_schema import ensure_strict_json_schema
found = []
tools = json.load(sys.stdin)
begun = time.process_time()
for schema in tools:
    try:
        found.append([ensure_strict_json_schema(schema), True])
    except Exception:
        found.append([schema, False])
print(json.dumps({"found": found, "seconds": time.process_time() - begun}))
"""


def _agents(tools: Sequence[Json]) -> Converted:
    """What its bridge to MCP does with `convert_schemas_to_strict`: the schema as it was, where it cannot be strict."""
    python = python_with(AGENTS, "openai-agents")
    schemas = [{"properties": {}, **tool["inputSchema"]} for tool in tools]
    done = subprocess.run(
        [str(python), "-c", _AGENTS_SCRIPT], input=json.dumps(schemas), capture_output=True, text=True
    )
    if done.returncode:
        raise NotInstalled(done.stderr[-500:])
    answer = json.loads(done.stdout)
    return Converted([one for one, _ in answer["found"]], [strict for _, strict in answer["found"]], answer["seconds"])


CONVERTERS = [
    Converter("mcp-hub, anthropic", Format.ANTHROPIC, ours(Format.ANTHROPIC, False)),
    Converter("mcp-hub, anthropic, strict", Format.ANTHROPIC, ours(Format.ANTHROPIC, True)),
    Converter("anthropic, transform_schema", Format.ANTHROPIC, _each(_anthropic, is_strict=True)),
    Converter("mcp-hub, openai", Format.OPENAI, ours(Format.OPENAI, False)),
    Converter("mcp-hub, openai, strict", Format.OPENAI, ours(Format.OPENAI, True)),
    Converter("openai-agents, strict", Format.OPENAI, _agents),
    Converter("mcp-hub, gemini", Format.GEMINI, ours(Format.GEMINI, False)),
    Converter("google-genai, mcp_to_gemini_tool", Format.GEMINI, _each(_gemini, is_strict=False)),
]
