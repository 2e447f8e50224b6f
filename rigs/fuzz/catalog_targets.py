"""Fuzz targets of what servers list: schemas that are said shorter, URIs that are mapped; and the search of it."""

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

import jsonschema_rs

from mcp_hub.catalog.compact import compact_schema, compact_tool
from mcp_hub.catalog.resources.uris import Remembered, Templates, UriTable, assign, assign_templates, readdress
from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import SearchIndex
from mcp_hub.catalog.search.words import clauses, key, words
from rigs.fuzz.mutate import json_bytes, mutated, mutated_json
from rigs.fuzz.target import Target, from_corpus, seeded
from tests.property.compact_instances import Instances
from tests.property.compact_schemas import DRAFT_2020_12, Schemas, asks_itself

Verdict = Callable[[Any], bool]

# -- schemas

_REAL: tuple[dict[str, Any], ...] = (
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "title": "Arguments",
        "properties": {"q": {"anyOf": [{"type": "string", "title": "Q"}, {"type": "null"}], "default": None}},
        "required": ["q"],
        "additionalProperties": False,
        "$defs": {"Unused": {"type": "string"}},
    },
    {"$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}, "properties": {"n": {"$ref": "#/$defs/N"}}},
    {"$id": "https://e.example/s", "$anchor": "a", "properties": {"a": {"$ref": "#a"}, "b": {"$ref": "https://x/y"}}},
    {
        "definitions": {"a/b": {"enum": [1, 1.0, "1"]}, "c~d": {"const": -0.0}},
        "allOf": [{"$ref": "#/definitions/a~1b"}],
    },
)
_WORDS = ("$ref", "$defs", "definitions", "anyOf", "oneOf", "not", "type", "title", "default", "properties", "items")
_TEXT_WORDS = (
    *(f'"{word}":'.encode() for word in _WORDS),
    b'{"$ref":"#/$defs/A"}',
    b'{"type":"null"}',
    b"[",
    b"{" * 50,
)
_TEXTS = tuple(json_bytes(schema) for schema in _REAL)
_mutated_schema = from_corpus(_TEXTS, _TEXT_WORDS)


def make_schema(rng: Random) -> bytes:
    if rng.random() < 0.15:
        return _mutated_schema(rng)
    schema = rng.choice(_REAL) if rng.random() < 0.2 else Schemas(rng).document()
    return json_bytes(schema if rng.random() < 0.5 else mutated_json(schema, _WORDS, rng))


def check_schema(data: bytes) -> None:
    compacted = compact_schema(data)
    assert compacted == data or len(compacted) < len(data)
    assert compact_schema(compacted) == compacted, "compacting twice changes more"
    tool = compact_tool(b'{"name":"t","inputSchema":%b,"outputSchema":{}}' % data)
    assert len(tool) <= len(data) + 60
    if compacted == data:
        return
    try:
        before, after = json.loads(data), json.loads(compacted)
    except ValueError:  # an integer of thousands of digits, which compaction takes as text
        return
    pairs = _verdicts(before, after)
    rng = seeded(data)
    for instance in _instances(before, rng) if pairs else ():
        for old, new in pairs:
            assert old(instance) is new(instance), (json.dumps(instance), compacted)


def _instances(schema: Any, rng: Random) -> list[Any]:
    """Those that can be drawn: what is no schema may not be followed far."""
    drawn = []
    instances = Instances(schema, rng)
    for turn in range(12):
        try:
            drawn += list(instances.draw(turn % 4))[-1:]
        except (TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError):
            continue
    return drawn


def _verdicts(before: Any, after: Any) -> list[tuple[Verdict, Verdict]]:
    """Verdicts that must agree; none where there is none to keep: no schema, or one that asks itself.

    Without `$schema` a schema is read as draft-07 and as 2020-12.
    """
    both: list[Any] = [jsonschema_rs.Draft7Validator, jsonschema_rs.Draft202012Validator]
    try:
        if asks_itself(before):
            return []
        kinds = both if "$schema" not in before else [jsonschema_rs.validator_for]
        old = [kind(before, offline=True).is_valid for kind in kinds]
    except (
        jsonschema_rs.ValidationError,
        jsonschema_rs.ReferencingError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
    ):
        return []
    except RecursionError:
        return []
    try:
        if "$schema" in after or before.get("$schema") == DRAFT_2020_12:
            return [(old[0], jsonschema_rs.validator_for(after, offline=True).is_valid)]
        return [(verdict, kind(after, offline=True).is_valid) for verdict, kind in zip(old * 2, both, strict=False)]
    except jsonschema_rs.ValidationError:
        if _is_schema({key: value for key, value in before.items() if key != "$schema"}):
            raise
        return []  # a part where draft-07 does not look was none before


def _is_schema(document: Any) -> bool:
    try:
        jsonschema_rs.Draft202012Validator(document, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return False
    return True


# -- URIs

SERVERS = ("a", "b", "c d", "é!")
_URIS = (
    *("x:1", "x:%20", "x:a b", "hub://a/x:1", "hub://b/x:1", "hub://b!1/x%3A1", "hub://c%20d/x:1"),
    "x:%zz#a#b",
    "hub://",
    "file:///etc/passwd",
    "https://e.example/?q=1#f",
    *("{+any}", "x:{id}", "hub://a/{+x}", "{s}://{+x}", "x:{a}{b}{/c}"),
)
_URI_WORDS = tuple(text.encode() for text in (*_URIS, "hub://a!2/", "%", "!", "/", "{", "}", "{?q}", "\ud7ff", "\x00"))


def make_uris(rng: Random) -> bytes:
    """One a line; the first character of a line chooses its server."""
    chosen = [f"{rng.randrange(4)}{rng.choice(_URIS)}" for _ in range(rng.randrange(1, 12))]
    return mutated("\n".join(chosen).encode(), _URI_WORDS, _URI_WORDS, rng)


def check_uris(data: bytes) -> None:
    rng = seeded(data)
    rows = [
        (SERVERS[ord(line[0]) % 4], line[1:]) for line in data.decode("utf-8", "surrogateescape").split("\n") if line
    ]
    listed = [row for row in rows if rng.random() < 0.5]
    templates = [row for row in rows if "{" in row[1]]
    exported = assign(listed)
    assert len(set(exported.values())) == len(set(listed)), "two share a name"
    assert set(assign_templates(templates)) == set(templates)
    known = UriTable(exported, Templates(templates), SERVERS, SERVERS, Remembered())
    for origin, uri in exported.items():
        assert known.resolve(uri) == origin and known.exported(*origin) == uri
    for server, uri in rows:
        # of the web each server says the same: clients fetch it themselves
        name = known.exported(server, uri)
        if len(uri) <= 8192 and not uri.lower().startswith(("http://", "https://")):
            assert known.resolve(name) == (server, uri)
    block = {"type": "resource_link", "uri": rows[0][1] if rows else "x:1"}
    result = json_bytes({"content": [block, {"type": "resource", "resource": {**block, "text": '"uri"'}}]})
    result = mutated(result, _URI_WORDS, [result], rng).decode("utf-8", "replace").encode()  # as every line is read
    readdress("tools/call", result, lambda uri: known.exported("a", uri))


# -- search

_TOOLS: tuple[tuple[str, str, str, Any], ...] = (
    ("github", "create_issue", "Creates an issue in a GitHub repository.", {"properties": {"title": {"enum": ["a"]}}}),
    (
        "github",
        "searchCode",
        "Searches code; regular expressions allowed.",
        {"properties": {"q": {"description": "x"}}},
    ),
    ("files", "read_file", "Reads a file. UTF-8 only, see https://e.example.", {"properties": {"path": {}}}),
    ("天气", "get_weather", "查询城市的天气 and forecast", {"properties": []}),
    ("notes", "add", "Adds a note", None),
)
_QUERIES = tuple(
    text.encode()
    for text in (
        "create a github issue",
        "searchCode",
        "read the file and then search it",
        "天气",
        "isue craete; naïve",
        "",
    )
)


def _index() -> SearchIndex:
    index = SearchIndex({"bug": ["issue"], "look up": ["search"]})
    for server in {row[0] for row in _TOOLS}:
        its = [row for row in _TOOLS if row[0] == server]
        index.put(server, [Searchable(f"{server}_{n}", server, n, about, schema or {}) for _, n, about, schema in its])
    return index


_INDEX = _index()


def make_query(rng: Random) -> bytes:
    if rng.random() < 0.01:
        return rng.choice((b"a", b"aB", b"a ", "é".encode(), "天".encode(), b"a, ", b"_")) * rng.choice((9_000, 60_000))
    return mutated(rng.choice(_QUERIES), [b" ", b", ", b"and then", "\u0301".encode(), b"get_"], _QUERIES, rng)


def check_search(data: bytes) -> None:
    text = data.decode("utf-8", "surrogatepass" if data.isascii() else "replace")
    assert len(words(text, 50)) <= 50
    key(text)
    clauses(text)
    rng = seeded(data)
    limit, server = rng.choice((0, 1, 3, 8)), rng.choice((None, None, "github", "nobody"))
    answer = _INDEX.search(text, limit, server)
    scores = [hit.score for hit in answer]
    assert scores == sorted(scores, reverse=True) and len(scores) <= limit
    assert answer == _INDEX.search(text, limit, server)
    document = Searchable(
        "x", "s", text, text, {"properties": {text: {"description": text, "enum": [text, data.hex()]}}}
    )
    own = SearchIndex()
    own.put("s", [document])
    hits = own.search(text[:200])
    assert len(hits) <= 1
    if re.fullmatch(r"[A-Za-z]{3,40}", text):
        assert hits, "a tool is not found by its name"


CATALOG_TARGETS = (
    Target("compact", make_schema, check_schema),
    Target("uris", make_uris, check_uris),
    Target("search", make_query, check_search),
)
