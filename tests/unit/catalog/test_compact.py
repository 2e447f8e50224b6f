"""The rules of compaction one by one: what each changes, and what it must leave."""

import json

import pytest

from mcp_hub.catalog.compact import compact_schema, compact_tool

D07 = '"$schema":"http://json-schema.org/draft-07/schema#"'
D2019 = '"$schema":"https://json-schema.org/draft/2019-09/schema"'
D2020 = '"$schema":"https://json-schema.org/draft/2020-12/schema"'

IN_PROPERTY = '{"type":"object","properties":{"p":%s}}'


def filled(template: str, *parts: str) -> str:
    """The template with the parts in the places of its `%s`."""
    return template % parts


@pytest.mark.parametrize(
    ("schema", "shorter"),
    [
        ('{"type":"string","title":"T"}', '{"type":"string"}'),
        ('{"$comment":"c","type":"string"}', '{"type":"string"}'),
        ('{"type":"string","examples":["a"]}', '{"type":"string"}'),
        ('{"type":"string","default":null}', '{"type":"string"}'),
        ('{"type":"object","required":[]}', '{"type":"object"}'),
        ('{"type":"object","additionalProperties":true}', '{"type":"object"}'),
        ('{"type":"object","additionalProperties":{"title":"T"}}', '{"type":"object"}'),
        ('{"minLength":0,"minItems":0,"minProperties":0}', "{}"),
        ('{"uniqueItems":false,"deprecated":false}', "{}"),
        ('{ "type" : "string" }', '{"type":"string"}'),
        ('{"description":"caf\\u00e9"}', '{"description":"café"}'),
        ('{"anyOf":[{"type":"string"},{"type":"null"}]}', '{"type":["string","null"]}'),
        ('{"anyOf":[{"type":"null"},{"type":"string"}]}', '{"type":["null","string"]}'),
        ('{"oneOf":[{"type":"string"},{"type":"null"}]}', '{"type":["string","null"]}'),
        (
            '{"description":"d","anyOf":[{"type":"array","items":{"type":"integer"}},{"type":"null","title":"N"}],"default":1}',
            '{"description":"d","type":["array","null"],"items":{"type":"integer"},"default":1}',
        ),
        (
            '{"anyOf":[{"type":["string","integer"],"minLength":1},{"type":"null"}]}',
            '{"type":["string","integer","null"],"minLength":1}',
        ),
    ],
)
def test_what_says_nothing_goes(schema: str, shorter: str) -> None:
    for place in ('{"items":%s}', '{"not":%s}', '{"allOf":[%s]}', '{"patternProperties":{"title":%s}}', IN_PROPERTY):
        assert compact_schema((place % schema).encode()).decode() == place % shorter


@pytest.mark.parametrize(
    "schema",
    [
        '{"properties":{"title":{"type":"string"},"default":{},"examples":{},"$ref":{},"required":{}},"type":"object"}',
        '{"enum":[{"title":"T","default":null},null]}',
        '{"const":{"title":"T","required":[],"anyOf":[{"type":"string"},{"type":"null"}]}}',
        '{"default":{"title":"T","$ref":"#/nowhere"},"type":"object"}',
        '{"additionalProperties":false,"format":"date","pattern":"^a","description":""}',
        '{"minimum":0,"exclusiveMinimum":0,"contains":{},"minContains":0,"uniqueItems":true,"deprecated":true}',
        '{"maximum":1e400,"minimum":1.0,"multipleOf":100000000000000000000000000000001,"minLength":0.0,"const":-0}',
        '{"title":{"not":"text"},"examples":"no list","required":false,"additionalProperties":null}',
        '{"x-note":{"title":"T","default":null}}',
        '{"properties":[{"title":"T"}],"anyOf":{"title":"T"}}',
        '{"default":0,"z":1,"a":2}',
        # evaluates what `unevaluatedProperties` would refuse
        '{"allOf":[{"additionalProperties":true}],"unevaluatedProperties":false}',
        # null passes one of the alternatives, but not what would stand beside the list of types
        '{"anyOf":[{"type":"string","enum":["a"]},{"type":"null"}]}',
        '{"anyOf":[{"type":"string","const":"a"},{"type":"null"}]}',
        '{"anyOf":[{"type":"string","not":{"maxLength":1}},{"type":"null"}]}',
        '{"anyOf":[{"minLength":1},{"type":"null"}]}',
        '{"anyOf":[{"type":"string"},{"type":"null","enum":[]}]}',
        # what stands beside the alternatives asserts, or would be overwritten
        '{"type":"string","anyOf":[{"type":"string"},{"type":"null"}]}',
        '{"properties":{"a":{}},"anyOf":[{"type":"object","additionalProperties":false},{"type":"null"}]}',
        '{"description":"of all","anyOf":[{"type":"string","description":"of one"},{"type":"null"}]}',
        '{"oneOf":[{"type":["string","null"]},{"type":"null"}]}',
        '{"anyOf":[{"type":"string"},{"type":"null"},{"type":"integer"}]}',
        # a pointer goes through, or to, what would go
        '{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"b":{"$ref":"#/properties/a/anyOf/0"}}}',
        '{"properties":{"a":{"additionalProperties":true},"b":{"$ref":"#/properties/a/additionalProperties"}}}',
    ],
)
def test_what_says_something_stays(schema: str) -> None:
    assert compact_schema(schema.encode()).decode() == schema
    for place in ('{"items":%s}', '{"anyOf":[%s]}', IN_PROPERTY):
        if '"#/' not in schema:
            assert compact_schema((place % schema).encode()).decode() == place % schema


@pytest.mark.parametrize(
    ("members", "is_kept"),
    [
        (D2020 + ',"type":"object"', False),
        (D2020 + ',"prefixItems":[{}],"format":"date"', False),
        (D07 + ',"type":"object"', False),
        (
            D07 + ',"definitions":{"a":{"const":1}},"properties":{"a":{"$ref":"#/definitions/a","description":"d"}}',
            False,
        ),
        (D07 + ',"items":[{}]', True),
        (D07 + ',"properties":{"a":{"format":"date"}}', True),
        (D07 + ',"dependencies":{"a":["b"]}', True),
        (D07 + ',"properties":{"a":{"$ref":"#","minLength":1}}', True),
        (D07 + ',"properties":{"a":{"$ref":"https://example.org/a"}}', True),
        (D07 + ',"unevaluatedProperties":false', True),
        (D07 + ',"$defs":[""]', True),
        (D2019 + ',"type":"object"', True),
        ('"$schema":"http://json-schema.org/draft-06/schema#","type":"object"', True),
    ],
)
def test_the_dialect_is_named_where_the_meaning_hangs_on_it(members: str, is_kept: bool) -> None:
    assert (b'"$schema"' in compact_schema(b"{%s}" % members.encode())) is is_kept


@pytest.mark.parametrize(
    "schema",
    [
        # endless
        '{"properties":{"a":{"$ref":"#/$defs/D"}},"$defs":{"D":{"items":{"$ref":"#/$defs/D"}}}}',
        '{"$ref":"#/$defs/D","$defs":{"D":{"$ref":"#/$defs/D"}}}',
        # something points into it, or an unknown keyword at it
        '{"properties":{"a":{"$ref":"#/$defs/D"},"b":{"$ref":"#/$defs/D/items"}},"$defs":{"D":{"items":{"minLength":12345678}}}}',
        '{"discriminator":{"mapping":{"x":"#/$defs/D"}},"$defs":{"D":{"const":1}}}',
        '{"properties":{"a":{"title":{"no text":"#/$defs/D"}}},"$defs":{"D":{"const":1}}}',
        '{"x-parts":[{"$ref":"#/$defs/D"}],"$defs":{"D":{"const":1}}}',
        '{"properties":{"a":{"$ref":"#/$defs/D"}},"$defs":{"D":true}}',
    ],
)
def test_a_definition_stays_that_something_leads_to(schema: str) -> None:
    assert compact_schema(schema.encode()).decode() == schema


@pytest.mark.parametrize(
    ("schema", "shorter"),
    [
        # names that must be escaped in a pointer
        (
            '{"items":{"$ref":"#/$defs/x~1y~0z%20%25"},"$defs":{"x/y~z %":{"const":1},"E":{}}}',
            '{"items":{"$ref":"#/$defs/x~1y~0z%20%25"},"$defs":{"x/y~z %":{"const":1}}}',
        ),
        # one that only an unneeded one refers to
        (
            '{"items":{"$ref":"#/$defs/D"},"$defs":{"D":{"type":"string"},"E":{"items":{"$ref":"#/$defs/F"}},"F":true}}',
            '{"items":{"$ref":"#/$defs/D"},"$defs":{"D":{"type":"string"}}}',
        ),
        # data refer to nothing
        ('{"enum":["#/$defs/D",{"$ref":"#/$defs/D"}],"$defs":{"D":{}}}', '{"enum":["#/$defs/D",{"$ref":"#/$defs/D"}]}'),
        (
            '{"title":"T","items":{"$ref":"#/$defs/D"},"$defs":{"D":true,"E":false}}',
            '{"items":{"$ref":"#/$defs/D"},"$defs":{"D":true}}',
        ),
        # the same dialect once more
        (
            '{"$schema":"http://json-schema.org/draft-06/schema#","not":{"$schema":"http://json-schema.org/draft-06/schema#"}}',
            '{"$schema":"http://json-schema.org/draft-06/schema#","not":{}}',
        ),
    ],
)
def test_only_what_is_needed_stays(schema: str, shorter: str) -> None:
    assert compact_schema(schema.encode()).decode() == shorter


@pytest.mark.parametrize(
    "member",
    (
        '"$ref":"#anchor" "$ref":"#/properties/b/anyOf/7" "$ref":"#/properties/b/anyOf/00" '
        '"$ref":"#/properties/b/default" "$ref":"#/$defs" "$ref":"#/$defs/" "$ref":"#/$defs/D~2" '
        '"$ref":"#/nowhere" "$ref":1 "$anchor":"a" "$dynamicAnchor":"a" "$dynamicRef":"#a" '
        '"$recursiveRef":"#" "$id":"part" "id":"part" "$schema":"https://example.org/other"'
    ).split(),
)
def test_what_cannot_be_proved_is_left_alone_but_for_blanks(member: str) -> None:
    rest = '"b":{"anyOf":[{"type":"string"},{"type":"null"}],"default":{"title":"T"},"title":"T"}'
    schema = filled('{"properties":{"a":{%s},%s},"$defs":{"D":{"type":"string"},"D~2":{}}}', member, rest)
    assert compact_schema(schema.encode()).decode() == schema
    spaced = json.dumps(json.loads(schema), indent=2)
    assert compact_schema(spaced.encode()).decode() == schema


@pytest.mark.parametrize(
    "dialect",
    ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-03/schema", "https://example.org/x"],
)
def test_an_unknown_dialect_is_left_alone(dialect: str) -> None:
    schema = b'{"$schema":"%s","title":"T","required":[]}' % dialect.encode()
    assert compact_schema(schema) == schema


def test_references_to_other_documents_stay_and_the_rest_is_compacted() -> None:
    schema = b'{"title":"T","properties":{"a":{"$ref":"https://example.org/a","title":"T"},"b":{"$ref":"b.json#/x"}}}'
    shorter = b'{"properties":{"a":{"$ref":"https://example.org/a"},"b":{"$ref":"b.json#/x"}}}'
    assert compact_schema(schema) == shorter
    # it may be this document's own name
    named = b'{"$id":"https://example.org/a",' + schema[1:]
    assert compact_schema(named) == named
    alone = b'{"$id":"https://example.org/a","title":"T","items":{"$ref":"#"}}'
    assert compact_schema(alone) == b'{"$id":"https://example.org/a","items":{"$ref":"#"}}'


def test_a_tool_loses_its_output_schema_and_what_its_input_schema_can_do_without() -> None:
    tool = b'{ "title": "A  title", "name":"\\u0061", "inputSchema": {"type": "object", "title": "T"},"x" : 1.0 ,'
    tool += b'"outputSchema": {"type": "object"}, "annotations": {"title": "T", "default" : null}}'
    shorter = b'{"title":"A  title","name":"\\u0061","inputSchema":{"type":"object"},"x":1.0,'
    shorter += b'"annotations":{"title": "T", "default" : null}}'
    assert compact_tool(tool) == shorter
    assert compact_tool(shorter) == shorter


def test_a_tool_with_nothing_to_save_stays_byte_for_byte() -> None:
    tool = b'{ "name" : "a", "inputSchema":{"type":"object"} }'
    assert compact_tool(tool) == tool
