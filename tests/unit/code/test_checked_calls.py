"""Stubs in front of the type checker of the engine: what a tool takes passes, what it does not take is refused."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from keyword import iskeyword
from typing import Any

import pytest

from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.signatures import stubs
from mcp_hub.code.steps import CodeError
from mcp_hub.code.tool import python_names
from mcp_hub.schema import alternatives, is_open, listed_values, named_types
from tests.captured import captured, encoded, needs_lists

pytest.importorskip("pydantic_monty")
pytestmark = pytest.mark.anyio

STRING = {"type": "string"}
ROW = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "next": {"$ref": "#/properties/rows/items"}},
    "required": ["id"],
}
TOOLS: Mapping[str, dict[str, Any]] = {
    "find": {
        "inputSchema": {
            "type": "object",
            "properties": {
                "state": {"enum": ["open", "closed"]},
                "names": {"type": "array", "items": STRING},
                "rows": {"type": "array", "items": {"type": "object"}},
                "limit": {"type": "number"},
                "filter": {"type": "object"},
            },
            "required": ["state"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"rows": {"type": "array", "items": ROW}, "size": {"type": "number"}},
            "required": ["rows", "size"],
        },
    },
    "loose": {"inputSchema": {"type": "object", "properties": {"x-y": STRING}}},
}
DECLARED = stubs({name: json.dumps(tool).encode() for name, tool in TOOLS.items()})


@pytest.fixture
async def engine() -> AsyncIterator[CodeEngine]:
    engine = CodeEngine()
    yield engine
    await engine.close()


async def problems(engine: CodeEngine, code: str, declared: str = DECLARED) -> str:
    session = engine.session()
    try:
        await session.check(code, declared, re.findall(r"async def (\w+)", declared))
    except CodeError as problem:
        assert problem.kind == "types", problem
        return f"{problem} {problem.problems}"
    finally:
        await session.close()
    return ""


GOOD = [
    'await find(state="open", names=["a"], rows=[{"a": 1}], limit=1, filter={"a": [1]})',
    "await find(state='open', limit=None, names=None)",
    "for state in ['open', 'closed']:\n    await find(state=state)",
    "some = ['a']\nmore = [{'a': 1}]\nawait find(state='open', names=some, rows=more)",
    "page = await find(state='open')\nawait find(state='open', filter=page, rows=page['rows'], limit=page['size'])",
    "page = await find(state='open')\nrange(page['size'])\npage['rows'][0]['id'] + 1",
    "row = (await find(state='open'))['rows'][0]\nwhile 'next' in row:\n    row = row['next']",
    "await loose(**{'x-y': 'a'})",
    "value = await loose()\nvalue['a'][0].anything()",
    "arguments = {'state': 'open', 'limit': 3}\nawait find(**arguments)",
    "for state in ['OPEN']:\n    await find(state=state.lower(), limit=2.0, names='a b'.split())",
    "page = await find(state='open')\npage['new'] = 1\npage['rows'] = []\npage.pop('size')\npage['new']",
    "page = await find(state='open')\ntry:\n    page['more']\nexcept KeyError:\n    pass",
    "async def rows(state: str) -> list[dict]:\n    return (await find(state=state))['rows']\nawait rows('open')",
    "import re\nre.match('a', 'a').group()",
    "found = next((row for row in (await find(state='open'))['rows']), None)\nfound['id']",
    "values = {'count': 0, 'names': []}\nvalues['count'] += 1\nvalues['names'].append('a')",
    "find = await find(state='open')\nfind['anything']",
    "from __future__ import annotations\njson.loads('[]')",
    "tasks = [asyncio.create_task(loose())]\nawait asyncio.gather(*tasks, return_exceptions=True)",
    "import asyncio\none, other = await asyncio.gather(find(state='open'), loose())\none['rows']",
]
BAD = {
    "await find(state='opn')": "opn",
    "await find()": "state",
    "await find(stat='open')": "stat",
    "await find('open')": "state",
    "await find(state='open', names='abc')": "list[str]",
    "await find(state='open', rows=['abc'])": "Sequence[Mapping",
    "await find(state='open', rows='abc')": "Sequence[Mapping",
    "(await find(state='open'))['row']": "row",
    "(await find(state='open'))['rows'][0]['ID']": "ID",
    "find(state='open')['rows']": "Coroutine",
    "await fnd(state='open')": "fnd",
    "len(find(state='open'))": "write await",
    "asyncio.create_task(find(state='open'))": "not awaited",
    "(await find(state='open')).rows": "rows",
    "await find(state='open', filter=3)": "Mapping",
    "await find(state='open', names=3)": "list[str]",
    "asyncio.wait_for(1)": "gather, run and sleep",
    "import numpy": "there are asyncio",
    "open('a')": "no files",
}


@pytest.mark.parametrize("code", GOOD)
async def test_call_that_a_tool_takes_passes(engine: CodeEngine, code: str) -> None:
    assert await problems(engine, code) == ""


@pytest.mark.parametrize("code", BAD)
async def test_call_that_a_tool_does_not_take_is_refused(engine: CodeEngine, code: str) -> None:
    assert BAD[code] in await problems(engine, code)


def example(schema: Any, root: Any, depth: int = 0) -> object:
    """A value of a simple schema."""
    if not isinstance(schema, dict) or depth > 8:
        return "x"
    if (inner := alternatives(schema, root)) is not None:
        return example(inner[0], root, depth + 1)
    if values := listed_values(schema):
        return values[0]
    match named_types(schema)[:1]:
        case ["integer"] | ["number"]:
            return 1
        case ["boolean"]:
            return True
        case ["array"]:
            return [example(schema.get("items"), root, depth + 1)]
        case ["object"]:
            return {"a": "x"}
        case ["null"]:
            return None
    return "x"


def call(name: str, arguments: dict[str, object]) -> str:
    strange = {key: value for key, value in arguments.items() if not key.isidentifier() or iskeyword(key)}
    plain = [f"{key}={value!r}" for key, value in arguments.items() if key not in strange]
    return f"await {name}({', '.join([*plain, *([f'**{strange!r}'] if strange else [])])})"


@needs_lists
async def test_captured_tools_are_called_with_all_their_parameters_and_with_none_that_they_lack(
    engine: CodeEngine,
) -> None:
    for server, tools in captured().items():
        names = python_names(tool["name"] for tool in tools)
        calls, wrong = [], []
        for tool in tools:
            schema = tool["inputSchema"]
            arguments = {name: example(member, schema) for name, member in schema.get("properties", {}).items()}
            calls.append(call(names[tool["name"]], arguments))
            wrong += [] if is_open(schema) else [f"await {names[tool['name']]}(no_such_parameter=1)"]
        declared = stubs({names[tool["name"]]: encoded(tool) for tool in tools})
        assert await problems(engine, "\n".join(calls), declared) == "", server
        text = await problems(engine, "\n".join(wrong), declared)
        assert text.count("no_such_parameter") >= min(len(wrong), 1), server
