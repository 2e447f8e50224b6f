"""What converters do to tools, in figures."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jsonschema_rs

from mcp_hub.formats.calls import write_results
from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.records import ModelCall
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.nodes import accepts_null
from rigs.formats.converters import Converted
from tests.property.compact_instances import Instances
from tests.unit.formats import documented
from tests.unit.formats.documented_results import broken_result
from tests.unit.formats.result_kinds import results

Json = dict[str, Any]
PER_TOOL = 20


class Figures(NamedTuple):
    """Tools of each kind, but for `parameters`: those that a model can no longer leave out."""

    crashed: int
    enforced: int
    parameters: int
    mandatory: int
    closed: int
    narrower: int
    broken: int
    milliseconds: float


def measured(tools: Sequence[Json], found: Converted, into: Format) -> Figures:
    pairs = [
        (tool["inputSchema"], schema) for tool, schema in zip(tools, found.schemas, strict=True) if schema is not None
    ]
    strict = [is_strict for is_strict, schema in zip(found.strict, found.schemas, strict=True) if schema is not None]
    forced = [len(list(_mandatory(before, after))) for before, after in pairs]
    return Figures(
        crashed=found.schemas.count(None),
        enforced=sum(strict),
        parameters=sum(forced),
        mandatory=sum(map(bool, forced)),
        closed=sum(bool(_free(before, "") - _free(after, "")) for before, after in pairs),
        narrower=sum(_is_narrower(*pair) for pair, is_strict in zip(pairs, strict, strict=True) if not is_strict),
        broken=sum(
            bool(_broken(after, into)) for (_, after), is_strict in zip(pairs, strict, strict=True) if is_strict
        ),
        milliseconds=found.seconds * 1000,
    )


def broken_results() -> list[str]:
    """The results of every kind that a provider would refuse, with the rules that they break."""
    call = ModelCall("c1", "see", {})
    return [
        f"{into}: {name}: {', '.join(faults)}"
        for into in PROVIDERS
        for name, result in results()
        if (faults := broken_result(into, write_results([call], {"c1": result}, into)))
    ]


def _mandatory(before: Json, after: Json) -> Iterator[str]:
    root = canonical(after, [])
    for name in after.get("required", ()):
        if name not in before.get("required", ()) and name in root.get("properties", {}):
            if not accepts_null(root, root["properties"][name]):
                yield name


def _free(schema: Any, path: str) -> set[str]:
    """Where objects are that describe no property and take any."""
    if not isinstance(schema, dict):
        return set()
    is_free = schema.get("additionalProperties", True) is not False and not schema.get("properties")
    found = {path} if path and schema.get("type") == "object" and is_free else set()
    for name, part in schema.get("properties", {}).items():
        found |= _free(part, f"{path}/{name}")
    return found | _free(schema.get("items"), f"{path}[]")


def _is_narrower(before: Json, after: Json) -> bool:
    """Whether arguments that the tool takes are not valid in the export; renamed parameters do not count."""
    if set(_names(before)) != set(_names(after)):
        return False
    takes = jsonschema_rs.validator_for(before, offline=True, validate_formats=False).is_valid
    given = jsonschema_rs.Draft202012Validator(after, offline=True, validate_formats=False).is_valid
    drawn = Instances(before, random.Random(18)).draw(PER_TOOL)
    return any(isinstance(one, dict) and takes(one) and not given(one) for one in drawn)


def _names(schema: Json) -> Iterator[str]:
    for node in documented.nodes(schema):
        yield from node.get("properties", ())


def _broken(schema: Json, into: Format) -> list[str]:
    if into is Format.ANTHROPIC:
        return documented.broken_for_anthropic(schema)
    return documented.broken_for_openai(schema)
