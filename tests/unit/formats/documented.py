"""The documented rules of providers for tools, checked without the code that makes them. Each rule cites its page.

Pages, read 2026-11-24: [O] developers.openai.com, guides "Structured Outputs" and "Function calling"; [A]
platform.claude.com, "Structured outputs" and "Define tools"; [G] google-genai 3.6.1, `types.FunctionDeclaration` and
`GenerateContentConfig.response_json_schema`.
"""

import re
from collections.abc import Iterator
from typing import Any

Json = Any

FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
SHARED = {"type", "title", "description", "enum", "anyOf", "properties", "required", "items", "additionalProperties"}
SHARED |= {"$ref", "$defs"}
OPENAI_STRICT = SHARED | {"pattern", "format", "multipleOf", "minimum", "maximum", "exclusiveMinimum"}
OPENAI_STRICT |= {"exclusiveMaximum", "minItems", "maxItems"}  # [O] "Supported properties"
ANTHROPIC_STRICT = SHARED | {"const", "allOf", "default", "format", "pattern", "minItems"}  # [A] "Supported features"
GEMINI = SHARED | set("format prefixItems minItems maxItems minimum maximum oneOf $id $anchor".split())  # [G]


def nodes(schema: Json) -> Iterator[dict[str, Json]]:
    """Every subschema, this one first."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in ("properties", "$defs", "patternProperties", "dependentSchemas"):
        for part in schema.get(keyword, {}).values():
            yield from nodes(part)
    for keyword in ("anyOf", "allOf", "oneOf", "prefixItems"):
        for part in schema.get(keyword, ()):
            yield from nodes(part)
    for keyword in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
        yield from nodes(schema.get(keyword))


def broken_at_the_top(schema: Json) -> list[str]:
    """[O] the root is an object and not anyOf; [A] no oneOf, allOf or anyOf at the top level."""
    found = [] if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) else ["no object"]
    return found + sorted({"anyOf", "oneOf", "allOf", "not", "enum", "$ref"} & schema.keys())


def broken_for_openai(schema: Json) -> list[str]:
    """[O] "Supported schemas", for `strict: true`."""
    found = broken_at_the_top(schema)
    every = list(nodes(schema))
    for node in every:
        found += [f"keyword {name}" for name in node.keys() - OPENAI_STRICT]
        if not node.keys() & {"type", "anyOf", "$ref", "enum"}:
            found.append("a schema of any value")
        if node.get("type") == "object":
            # "additionalProperties: false must always be set in objects"; "All fields must be required"
            found += [] if node.get("additionalProperties") is False else ["an open object"]
            found += [] if node.get("required", []) == list(node.get("properties", ())) else ["an optional property"]
        if node.get("type") == "array" and "items" not in node:
            found.append("an array without items")
        if "format" in node and node["format"] not in FORMATS:
            found.append(f"format {node['format']}")
    return found + broken_sizes(schema, every)


def broken_sizes(schema: Json, every: list[dict[str, Json]]) -> list[str]:
    """[O] "Objects have limitations on nesting depth and size", "total string size", "enum size"."""
    names = [name for node in every for name in node.get("properties", ())]
    values = [value for node in every for value in node.get("enum", ())]
    texts = [*names, *schema.get("$defs", ()), *(value for value in values if isinstance(value, str))]
    found = ["more than 5000 properties"] if len(names) > 5000 else []
    found += ["more than 1000 values"] if len(values) > 1000 else []
    found += ["more than 120000 characters"] if sum(map(len, texts)) > 120_000 else []
    for node in every:
        if len(node.get("enum", ())) > 250 and sum(len(one) for one in node["enum"] if isinstance(one, str)) > 15_000:
            found.append("a long enum")
    return found + (["more than 10 levels"] if levels(schema, schema, ()) > 10 else [])


def levels(root: Json, schema: Json, around: tuple[str, ...]) -> int:
    if not isinstance(schema, dict):
        return 0
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return 0 if name in around else levels(root, root["$defs"][name], (*around, name))
    below = [levels(root, part, around) for part in (*schema.get("properties", {}).values(), schema.get("items"))]
    beside = [levels(root, part, around) for part in schema.get("anyOf", ())]
    own = 1 + max(below, default=0) if schema.get("type") in ("object", "array") else 0
    return max([own, *beside])


def broken_for_anthropic(schema: Json) -> list[str]:
    """[A] "JSON Schema limitations", for `strict: true`."""
    found = broken_at_the_top(schema)
    for node in nodes(schema):
        found += [f"keyword {name}" for name in node.keys() - ANTHROPIC_STRICT]
        found += [f"minItems {node['minItems']}"] if node.get("minItems", 0) not in (0, 1) else []
        found += ["enum of objects"] if any(isinstance(one, dict | list) for one in node.get("enum", ())) else []
        if node.get("type") == "object" and node.get("additionalProperties") is not False:
            found.append("an open object")
        if "format" in node and node["format"] not in FORMATS | {"uri"}:
            found.append(f"format {node['format']}")
        if re.search(r"\(\?[=!<]|\\[bB1-9]", node.get("pattern", "")):
            found.append(f"pattern {node['pattern']}")
    return found + (["recursive"] if is_recursive(schema, schema, ()) else [])


def is_recursive(root: Json, schema: Json, around: tuple[str, ...]) -> bool:
    for node in nodes({key: one for key, one in schema.items() if key != "$defs"}):
        name = node.get("$ref", "").rpartition("/")[2]
        if name and (name in around or is_recursive(root, root["$defs"][name], (*around, name))):
            return True
    return False


def anthropic_cost(tools: list[Json]) -> tuple[int, int, int]:
    """[A] "Explicit limits": strict tools, their optional parameters, and those with alternatives; 20, 24, 16."""
    schemas = [tool["input_schema"] for tool in tools if tool.get("strict")]
    objects = [node for schema in schemas for node in nodes(schema) if "properties" in node]
    optional = sum(name not in node.get("required", ()) for node in objects for name in node["properties"])
    parts = [part for node in objects for part in node["properties"].values()]
    return len(schemas), optional, sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts)


def broken_for_gemini(schema: Json) -> list[str]:
    """[G] keywords; a reference has no siblings; names of parameters."""
    found = broken_at_the_top(schema)
    for node in nodes(schema):
        found += [f"keyword {name}" for name in node.keys() - GEMINI]
        found += ["siblings of $ref"] if "$ref" in node and len(node) > 1 else []
        names = [name for name in node.get("properties", ()) if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name)]
        found += [f"parameter {name}" for name in names]
        values = node.get("enum", ())
        found += [f"enum {one}" for one in values if not isinstance(one, str | int | float) or isinstance(one, bool)]
    return found
