"""Schemas and conversion between JSON and Python.

Argument models name their fields `p0`, `p1`, …: pydantic forbids names such as `json` and `_x`.
"""

import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import pydantic
import pydantic_core
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from mcp_hub.errors import InvalidParams
from mcp_hub.types import JsonObject

ToolFunction = Callable[..., object]
Bind = Callable[[bytes], dict[str, object]]
"""Arguments by name, with defaults. Raises `InvalidParams`, which names each wrong one for the model."""

NOT_NAMED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only, but tools are called with named arguments",
    inspect.Parameter.VAR_POSITIONAL: "is variadic (*), but tools are called with named arguments",
    inspect.Parameter.VAR_KEYWORD: "is variadic (**), but a tool has to say which arguments it takes",
}

_SECTION: Final = re.compile(
    r"^(?:Args|Arguments|Parameters|Params)\s*:\s*\n([ \t]+)(\S.*(?:\n(?:[ \t].*)?)*)", re.MULTILINE
)
"""A Google-style section: the indent of its first line, and the indented lines below its heading."""
_HEAD: Final = r"(\w+)[ \t]*(?:\(.*?\))?[ \t]*:"
_ENTRY: Final = re.compile(rf"^{_HEAD}(.*(?:\n(?!{_HEAD}).*)*)", re.MULTILINE)
"""A name, perhaps with its type, and the text up to the next name."""


def _finding(detail: ErrorDetails, model: type[pydantic.BaseModel]) -> str:
    parameters = ", ".join(field.alias or "" for field in model.model_fields.values())
    where = ".".join(str(part) for part in detail["loc"]) or "arguments"
    match detail["type"]:
        case "missing":
            return f"- {where}: required, but missing"
        case "extra_forbidden" if len(detail["loc"]) == 1:
            return f"- {where}: unknown argument (known: {parameters or 'none'})"
        case _:
            return f"- {where}: {detail['msg']}"


class _Untitled(GenerateJsonSchema):
    """Without pydantic's titles, which cost tokens."""

    def field_title_should_be_set(self, schema: object) -> bool:
        return False


def derive_parameters(
    function: ToolFunction, hints: Mapping[str, object], without: str | None
) -> tuple[JsonObject, Bind]:
    """The JSON Schema except `without`, and its binding.

    Raises `TypeError` if named JSON values cannot fill the parameters.
    """
    described = documented_parameters(inspect.getdoc(function) or "")
    fields: dict[str, object] = {}
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in NOT_NAMED:
            raise TypeError(f"parameter {name!r} {NOT_NAMED[parameter.kind]}")
        if name != without:
            fields[f"p{len(names)}"] = _field(parameter, hints.get(name, object), described.get(name))
            names.append(name)
    try:
        # extra="forbid": a misspelt optional argument is an error that the caller can fix, not a silent default
        config = pydantic.ConfigDict(extra="forbid")
        # the field types are known at run time only
        model = pydantic.create_model("Arguments", __config__=config, **fields)  # type: ignore[call-overload]
        schema = model.model_json_schema(schema_generator=_Untitled)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"a parameter has a type that JSON cannot give: {_first_sentence(error)}") from error
    del schema["title"]
    return schema, partial(_bound, model, tuple(names))


def _bound(model: type[pydantic.BaseModel], names: Sequence[str], arguments: bytes) -> dict[str, object]:
    try:
        bound = model.model_validate_json(arguments)
    except pydantic.ValidationError as error:
        findings = [_finding(detail, model) for detail in error.errors(include_url=False, include_input=False)]
        raise InvalidParams("invalid arguments:\n" + "\n".join(findings)) from error
    return {name: getattr(bound, f"p{index}") for index, name in enumerate(names)}


def first_paragraph(docstring: str | None) -> str | None:
    """The first paragraph on one line; None if empty."""
    paragraph = inspect.cleandoc(docstring or "").split("\n\n")[0]
    return " ".join(paragraph.split()) or None


def object_schema(annotation: object) -> JsonObject:
    """The type's JSON Schema; a schema of a non-object is wrapped under "result". Raises `TypeError`."""
    try:
        # a type form is a value here, which the type checker cannot follow
        adapter: pydantic.TypeAdapter[object] = pydantic.TypeAdapter(annotation)  # type: ignore[arg-type]
        schema = adapter.json_schema(mode="serialization", schema_generator=_Untitled)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"the output type has no JSON form: {_first_sentence(error)}") from error
    if schema.get("type") == "object":
        return schema
    definitions = schema.pop("$defs", None)  # references start at the root, so these stay there
    wrapped: JsonObject = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return wrapped if definitions is None else {**wrapped, "$defs": definitions}


def plain(value: object) -> object:
    """The value as JSON types, also from pydantic models, dataclasses, dates and sets.

    Raises `TypeError` for values without a JSON form, `ValueError` for NaN and infinities.
    """
    simple = msgspec.to_builtins(value, str_keys=True, enc_hook=_simplify)
    stack = [("the value", simple)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise ValueError(f"{path} is {item}, which JSON cannot carry")
        if isinstance(item, dict):
            stack += [(f"{path}.{key}", member) for key, member in item.items()]
        elif isinstance(item, list | tuple):
            stack += [(f"{path}[{index}]", member) for index, member in enumerate(item)]
    return simple


def _simplify(value: object) -> object:
    try:
        return pydantic_core.to_jsonable_python(value, by_alias=True)
    except pydantic_core.PydanticSerializationError as error:
        raise TypeError(f"a {type(value).__name__} has no JSON form") from error


def _first_sentence(error: Exception) -> str:
    return str(error).splitlines()[0].split(". ")[0]


def _field(parameter: inspect.Parameter, annotation: object, documented: str | None) -> tuple[object, object]:
    """`Field(…)` wins over text in `Annotated`, and that over the docstring."""
    base: object = annotation
    metadata: list[object] = []
    if typing.get_origin(annotation) is typing.Annotated:
        base, *metadata = typing.get_args(annotation)
    text = next((item for item in metadata if isinstance(item, str)), documented)
    named = pydantic.Field(alias=parameter.name, description=text)
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    return typing.Annotated[(base, named, *metadata)], default


def documented_parameters(docstring: str) -> dict[str, str]:
    """Texts of parameters by name."""
    section = _SECTION.search(docstring)
    entries = _ENTRY.finditer(section[2].replace(f"\n{section[1]}", "\n")) if section else ()
    return {entry[1]: " ".join(entry[2].split()) for entry in entries}
