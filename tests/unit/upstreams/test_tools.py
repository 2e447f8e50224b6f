"""What the `tool` decorator makes of a function: names, descriptions, schemas, refusals."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic
import pytest
from pydantic import Field

from mcp_hub.errors import InvalidParams
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.functions.registry import Context, Registry, Tool
from mcp_hub.upstreams.functions.schemas import plain


def made(function: Callable[..., object], **options: object) -> Tool:
    registry = Registry()
    registry.tool(**options)(function)  # type: ignore[call-overload]  # options of one test each
    (tool,) = registry.tools.values()
    return tool


def listed(function: Callable[..., object], **options: object) -> JsonObject:
    """The definition as clients see it."""
    definition: JsonObject = json.loads(made(function, **options).definition)
    return definition


def properties(function: Callable[..., object]) -> JsonObject:
    found: JsonObject = listed(function)["inputSchema"]["properties"]
    return found


def bind(function: Callable[..., object], arguments: str) -> dict[str, object]:
    return made(function).bind(arguments.encode())


def refusal(function: Callable[..., object], arguments: str) -> list[str]:
    with pytest.raises(InvalidParams) as caught:
        bind(function, arguments)
    heading, *findings = str(caught.value).splitlines()
    assert heading == "invalid arguments:"
    return findings


class Address(pydantic.BaseModel):
    street: str
    number: int = 1


def test_name_description_and_schema_come_from_the_function() -> None:
    def greet(name: str, times: int = 2) -> str:
        """Greet somebody,
        more than once.

        Not part of the description.
        """
        return name * times

    assert listed(greet) == {
        "name": "greet",
        "description": "Greet somebody, more than once.",
        "inputSchema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "times": {"type": "integer", "default": 2}},
            "required": ["name"],
            "additionalProperties": False,
        },
    }


def test_what_the_author_says_wins_over_the_function() -> None:
    def greet() -> None:
        """Greet."""

    hints = {"readOnlyHint": True}
    said = {"name": "say.hello", "title": "Hello", "description": "Say it", "annotations": hints}
    definition = listed(greet, **said)
    assert {key: definition[key] for key in said} == said


def test_decorator_leaves_the_function_alone_with_and_without_options() -> None:
    registry = Registry()

    @registry.tool
    def one() -> int:
        return 1

    @registry.tool(name="zwei")
    def two() -> int:
        return 2

    assert (one(), two()) == (1, 2)
    assert list(registry.tools) == ["one", "zwei"]
    assert repr(registry) == "<Registry: one, zwei>"


def test_parameter_descriptions_come_from_field_then_annotation_then_docstring() -> None:
    def search(
        query: str,
        limit: Annotated[int, "from the annotation", Field(ge=1)],
        order: Annotated[str, Field(description="from the field"), "unused"],
        page: int = Field(default=1, description="from the default", le=9),
        bare: int = 0,
    ) -> None:
        """Search.

        Args:
            query (str): from the docstring,
                in two lines: really
            limit: unused
            order: unused
            page: unused

        Returns:
            bare: not a parameter text
        """

    found = properties(search)
    assert found["query"]["description"] == "from the docstring, in two lines: really"
    assert found["limit"] == {"type": "integer", "minimum": 1, "description": "from the annotation"}
    assert found["order"]["description"] == "from the field"
    assert found["page"] == {"type": "integer", "maximum": 9, "default": 1, "description": "from the default"}
    assert "description" not in found["bare"]


def test_models_literals_and_unions_have_their_schema() -> None:
    def move(to: Address, speed: Literal["slow", "fast"] = "slow", note: str | None = None) -> None: ...

    schema = listed(move)["inputSchema"]
    assert schema["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert schema["properties"]["speed"]["enum"] == ["slow", "fast"]
    assert schema["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert schema["required"] == ["to"]
    assert bind(move, '{"to": {"street": "x"}}')["to"] == Address(street="x")


def test_parameters_may_have_any_name_and_no_type() -> None:
    def odd(json, copy: int, model_config: int, _private: int = 4, p0: int = 5): ...  # type: ignore[no-untyped-def]

    values = bind(odd, '{"json": [1], "copy": 2, "model_config": 3}')
    assert values == {"json": [1], "copy": 2, "model_config": 3, "_private": 4, "p0": 5}


def test_parameter_may_have_an_alias() -> None:
    def mail(from_: Annotated[str, Field(alias="from")]) -> None: ...

    assert list(properties(mail)) == ["from"]
    assert bind(mail, '{"from": "me"}') == {"from_": "me"}


def test_mutable_defaults_are_not_shared_between_calls() -> None:
    def add(items: list[int] = []) -> None: ...  # noqa: B006  # the very mistake that is tested

    first = bind(add, "{}")["items"]
    assert isinstance(first, list)
    first.append(1)
    assert bind(add, "{}") == {"items": []}


def test_context_is_not_an_argument() -> None:
    def work(context: Context, n: int) -> None: ...

    def maybe(n: int, context: Context | None = None) -> None: ...

    assert list(properties(work)) == list(properties(maybe)) == ["n"]
    assert refusal(work, '{"n": 1, "context": {}}') == ["- context: unknown argument (known: n)"]


def test_every_wrong_argument_is_named() -> None:
    def move(to: Address, speed: int, note: str) -> None: ...

    assert refusal(move, '{"to": {"street": 1}, "speed": "x", "sped": 2}') == [
        "- to.street: Input should be a valid string",
        "- speed: Input should be a valid integer, unable to parse string as an integer",
        "- note: required, but missing",
        "- sped: unknown argument (known: to, speed, note)",
    ]


def test_arguments_that_are_no_json_are_refused() -> None:
    assert refusal(nothing, '{"x": ')[0].startswith("- arguments: Invalid JSON")
    assert refusal(nothing, '{"x": 1}') == ["- x: unknown argument (known: none)"]


def nothing() -> None: ...
def positional(a: int, /) -> None: ...
def variadic(*numbers: int) -> None: ...
def keywords(**options: int) -> None: ...
def opaque(thing: Registry) -> None: ...
def two_contexts(a: Context, b: Context) -> None: ...
def unknown_type(a: "NoSuchType") -> None: ...  # type: ignore[name-defined]  # noqa: F821  # the mistake that is tested
def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (positional, "tool \"positional\": parameter 'a' is positional-only"),
        (variadic, r"tool \"variadic\": parameter 'numbers' is variadic \(\*\)"),
        (keywords, r"parameter 'options' is variadic \(\*\*\)"),
        (opaque, "a parameter has a type that JSON cannot give: .*Registry"),
        (two_contexts, "more than one parameter is a Context: a, b"),
        (unknown_type, "an annotation cannot be evaluated: name 'NoSuchType' is not defined"),
        (generator, "a generator has to be async"),
        (Address, 'tool "Address": expected a function'),
    ],
)
def test_functions_that_cannot_be_tools_are_refused_at_once(function: Callable[..., object], message: str) -> None:
    registry = Registry()
    with pytest.raises(TypeError, match=message):
        registry.tool(function)
    assert not registry.tools


def test_bad_and_taken_names_are_refused() -> None:
    registry = Registry()
    registry.tool(name="two")(nothing)
    with pytest.raises(ValueError, match='tool "two" is defined twice'):
        registry.tool(name="two")(nothing)
    for name in ("with space", "x" * 129, "<lambda>"):
        with pytest.raises(ValueError, match="has to be 1 to 128 letters"):
            registry.tool(name=name)(nothing)


def test_default_that_json_cannot_carry_is_refused() -> None:
    def bad(x: float = float("nan")) -> None: ...

    with pytest.raises(TypeError, match=r'tool "bad": .*x\.default is nan, which JSON cannot carry'):
        Registry().tool(bad)


INTEGERS = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("output", "schema", "wraps"),
    [
        ({"type": "object", "properties": {"n": {}}}, {"type": "object", "properties": {"n": {}}}, False),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, False),
        (list[int], {"type": "object", "properties": {"result": INTEGERS}, "required": ["result"]}, True),
    ],
)
def test_output_schema_is_a_schema_or_a_type(output: object, schema: JsonObject, wraps: bool) -> None:
    tool = made(nothing, output_schema=output)
    assert json.loads(tool.definition)["outputSchema"] == schema and tool.wraps_result is wraps


def test_wrapped_output_schema_keeps_its_definitions_where_references_look() -> None:
    schema = listed(nothing, output_schema=list[Address])["outputSchema"]
    assert schema["properties"]["result"]["items"] == {"$ref": "#/$defs/Address"}
    assert list(schema["$defs"]) == ["Address"]


@pytest.mark.parametrize("output", [{"type": "array"}, Registry])
def test_output_schema_that_is_no_object_is_refused(output: object) -> None:
    with pytest.raises(TypeError, match='tool "nothing": .*(object|JSON)'):
        made(nothing, output_schema=output)


def test_async_functions_do_not_take_a_thread() -> None:
    async def coroutine() -> None: ...
    async def streaming() -> AsyncIterator[str]:
        yield "x"

    assert [made(function).in_thread for function in (coroutine, streaming, nothing)] == [False, False, True]


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1), {"x": 1}),
        (Address(street="a"), {"street": "a", "number": 1}),
        ({"deep": [Address(street="a"), {1}]}, {"deep": [{"street": "a", "number": 1}, [1]]}),
        ({1: "a"}, {"1": "a"}),
        (None, None),
    ],
)
def test_values_become_plain_json(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_what_json_cannot_carry_is_named() -> None:
    with pytest.raises(ValueError, match=r"^the value\.a\[1\] is inf, which JSON cannot carry$"):
        plain({"a": [1, float("inf")]})
    with pytest.raises(TypeError, match="^a Registry has no JSON form$"):
        plain([Registry()])
