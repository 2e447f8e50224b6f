import json

import msgspec
import pytest

from mcp_hub.catalog.offers.definitions import MAX_DEPTH, MAX_KEY_LENGTH, encode_as, in_era, parse
from mcp_hub.catalog.offers.filters import Traits, _Hints
from mcp_hub.protocol.jsonrpc.envelope import BadMessage
from mcp_hub.protocol.jsonrpc.repair import NOT_JSON, placeholder
from mcp_hub.types import Era, Kind

TOOL = b'{"name":"%s","inputSchema":{"type":"object"}}'


def tool(**members: object) -> bytes:
    return json.dumps({"name": "t", "inputSchema": {"type": "object"}, **members}).encode()


def resource(**members: object) -> bytes:
    return json.dumps({"uri": "a:b", "name": "n", **members}).encode()


def prompt(**members: object) -> bytes:
    return json.dumps({"name": "p", **members}).encode()


def template(**members: object) -> bytes:
    return json.dumps({"uriTemplate": "a:{b}", "name": "n", **members}).encode()


def nested(levels: int, filler: str = "") -> bytes:
    schema = '{"type":"object","x":' + '{"a":' * levels + f'"{filler}"' + "}" * levels + "}"
    return f'{{"name":"t","inputSchema":{schema}}}'.encode()


def test_bytes_of_every_other_member_survive_a_new_name() -> None:
    raw = b'{"x-new" : [1e400, 18446744073709551616], "name":"a", "inputSchema":{ "type":"object", "$defs" : {}}}'
    (found,), unfit = parse(Kind.TOOL, [raw], "s")
    assert not unfit
    expected = b'{"x-new":[1e400, 18446744073709551616],"name":"s_a","inputSchema":{ "type":"object", "$defs" : {}}}'
    assert encode_as(found, "s_a") == expected


def test_line_breaks_between_tokens_go_because_a_stdio_frame_is_one_line() -> None:
    raw = json.dumps(json.loads(tool(description="a\nb")), indent=1).replace("\n", "\r\n").encode()
    (found,), _ = parse(Kind.TOOL, [raw], "s")
    assert b"\n" not in encode_as(found, "t") and b"\r" not in encode_as(found, "t")
    assert json.loads(encode_as(found, "t")) == json.loads(raw)


def test_summary_is_the_first_line_of_the_description() -> None:
    (found,), _ = parse(Kind.TOOL, [tool(description="\n  Adds. \nMore.")], "s")
    assert found.summary == "Adds."


def test_a_value_that_is_not_json_puts_its_definition_aside() -> None:
    line = b'{"id":1,"result":{"tools":[%s,{"name":"b","inputSchema":{"type":"object","default":NaN}}]}}' % (
        TOOL % b"a"
    )
    page = placeholder(BadMessage(-32700, "malformed"), line, "tools/list").result
    raws = [json.dumps(one).encode() for one in json.loads(bytes(page))["tools"]]
    found, (unfit,) = parse(Kind.TOOL, raws, "s")
    assert [one.key for one in found] == ["a"]
    assert (unfit.key, unfit.reason) == ("b", "holds NaN or Infinity, which JSON does not have")


@pytest.mark.parametrize(("kind", "key"), [(Kind.TOOL, "name"), (Kind.PROMPT, "name"), (Kind.RESOURCE, "uri")])
@pytest.mark.parametrize("number", ["9" * 4301, "-" + "9" * 4301, "1" * 10**5 + ".5"])
def test_a_number_that_python_clients_cannot_read_puts_its_definition_aside(kind: Kind, key: str, number: str) -> None:
    raw = '{"%s":"%s","name":"a","inputSchema":{"type":"object"},"_meta":{"text":"\\"","x":%s}}'
    raws = [(raw % (key, f"{at}:x", value)).encode() for at, value in (("a", "5"), ("b", number), ("c", "9" * 4300))]
    if kind is not Kind.RESOURCE:
        raws = [one.replace(b'"name":"a",', b"") for one in raws]
    found, (unfit,) = parse(kind, raws, "s")
    assert [one.key for one in found] == ["a:x", "c:x"]
    assert (unfit.key, unfit.reason) == (
        "b:x",
        "holds a number of more than 4300 digits, which Python's clients cannot read",
    )


def test_a_definition_that_could_not_be_read_is_put_aside_by_its_place() -> None:
    found, (unfit,) = parse(Kind.TOOL, [TOOL % b"a", NOT_JSON], "s")
    assert [one.key for one in found] == ["a"]
    assert (unfit.key, unfit.reason) == ("#2", "is not JSON that can be read")


def test_one_bad_definition_does_not_hide_the_others() -> None:
    odd = b'{"name":"c","inputSchema":5}'
    found, unfit = parse(Kind.TOOL, [TOOL % b"a", b"[]", TOOL % b"b", TOOL % b"a", odd], "s")
    assert [one.key for one in found] == ["a", "b"]
    assert [(one.server, one.key) for one in unfit] == [("s", "#2"), ("s", "a"), ("s", "c")]
    assert [one.reason for one in unfit] == [
        "Expected `object`, got `array`",
        "duplicate name: the first one is used",
        "Expected `object`, got `int` - at `$.inputSchema`",
    ]


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        (Kind.TOOL, b"", "truncated"),
        (Kind.TOOL, b"{", "truncated"),
        (Kind.TOOL, b'"x"', "Expected `object`"),
        (Kind.TOOL, b'{"name":"a","inputSchema":{"type":"object"},"x":"\xff"}', "not UTF-8"),
        (Kind.TOOL, b'{"name":"a","inputSchema":{"type":"object"},"x":NaN}', "malformed"),
        (Kind.TOOL, rb'{"name":"\ud83d-------","inputSchema":{"type":"object"}}', "malformed"),
        (Kind.TOOL, rb'{"name":"a","description":"\udc00","inputSchema":{"type":"object"}}', "surrogate"),
        (Kind.TOOL, b'{"inputSchema":{"type":"object"}}', "missing required field `name`"),
        (Kind.TOOL, tool(name=""), "name is empty"),
        (Kind.TOOL, tool(name=1), "Expected `str`, got `int` - at `$.name`"),
        (Kind.TOOL, tool(name="a\nb"), "control characters"),
        (Kind.TOOL, tool(name="a\x85b"), "control characters"),
        (Kind.TOOL, tool(name="x" * (MAX_KEY_LENGTH + 1)), "longer than 1024"),
        (Kind.TOOL, tool(inputSchema="{}"), "$.inputSchema"),
        (Kind.TOOL, tool(inputSchema={"type": "array"}), "$.inputSchema.type"),
        (Kind.TOOL, tool(inputSchema={"type": "object", "required": "x"}), "$.inputSchema.required"),
        (Kind.TOOL, tool(inputSchema=False), "$.inputSchema"),
        (Kind.TOOL, tool(inputSchema={"type": ["array"]}), "$.inputSchema.type"),
        (Kind.TOOL, tool(inputSchema={"type": "object", "properties": {"a": "string"}}), "$.inputSchema.properties"),
        (Kind.TOOL, tool(inputSchema={"type": "object", "properties": ["a"]}), "$.inputSchema.properties"),
        (Kind.TOOL, tool(inputSchema={"type": "object", "required": "q"}), "$.inputSchema.required"),
        (Kind.TOOL, tool(inputSchema={"type": "object", "$schema": 7}), "$.inputSchema"),
        (Kind.RESOURCE, b'{"uri":"a:b"}', "missing required field `name`"),
        (Kind.RESOURCE, b'{"name":"n"}', "missing required field `uri`"),
        (Kind.RESOURCE, resource(uri="readme"), "no scheme"),
        (Kind.RESOURCE, resource(uri="http://"), "uri is not a URI: empty host"),
        (Kind.RESOURCE, resource(uri="http://a b/"), "uri is not a URI: "),
        (Kind.RESOURCE, resource(uri="note://a:port/"), "uri is not a URI: "),
        (Kind.TEMPLATE, template(uriTemplate=None), "$.uriTemplate"),
        (Kind.PROMPT, prompt(arguments=[{"name": 1}]), "$.arguments[0].name"),
    ],
)
def test_what_would_break_a_client_is_quarantined_with_its_reason(kind: Kind, raw: bytes, reason: str) -> None:
    found, (unfit,) = parse(kind, [raw], "s")
    assert not found
    assert reason in unfit.reason


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Kind.TOOL, tool(outputSchema={"type": "array"}, execution={"taskSupport": "new"}, future=[None])),
        (Kind.TOOL, tool(annotations={"readOnlyHint": True, "future": 1}, icons=[{"src": "x", "sizes": ["any"]}])),
        (Kind.RESOURCE, resource(size=12, annotations={"priority": 1, "audience": ["user"]})),
        (Kind.TEMPLATE, template(uriTemplate="{scheme}://x")),
        (Kind.PROMPT, prompt(arguments=[{"name": "a", "required": True}])),
    ],
)
def test_a_definition_that_the_specification_allows_keeps_its_bytes(kind: Kind, raw: bytes) -> None:
    (found,), unfit = parse(kind, [raw], "s")
    assert unfit == [] and found.sent is None
    assert json.loads(encode_as(found, found.key)) == json.loads(raw)


def test_nesting_is_bounded_whatever_strings_hold() -> None:
    assert parse(Kind.TOOL, [nested(MAX_DEPTH - 2)], "s")[1] == []
    assert parse(Kind.TOOL, [nested(MAX_DEPTH - 2, '[{\\"[\\\\')], "s")[1] == []
    many_flat = tool(inputSchema={"type": "object", "properties": {f"p{n}": {} for n in range(500)}})
    assert parse(Kind.TOOL, [many_flat], "s")[1] == []
    closers = tool(x="}" * 200).replace(b'"inputSchema"', b'"y":"]]]]","inputSchema"')
    assert parse(Kind.TOOL, [closers], "s")[1] == []
    for deep in (nested(MAX_DEPTH - 1), nested(MAX_DEPTH - 1, "}}}\\\\"), nested(100_000)):
        (unfit,) = parse(Kind.TOOL, [deep], "s")[1]
        assert "nested" in unfit.reason


def test_a_label_and_reason_are_fit_for_one_log_line() -> None:
    hostile = [tool(name="a\x1b[2J\n" + "x" * 5000), tool(inputSchema={"type": "y\n" * 5000})]
    for unfit in parse(Kind.TOOL, hostile, "s")[1]:
        assert len(unfit.key) <= 240 and len(unfit.reason) <= 240
        assert "\n" not in unfit.key + unfit.reason and "\x1b" not in unfit.key


def era_form(raw: bytes, era: Era) -> dict[str, object]:
    result = msgspec.json.decode(in_era(Kind.TOOL, raw, era))
    assert isinstance(result, dict)
    return result


@pytest.mark.parametrize("schema", [{"type": "array"}, {}, {"type": ["object"]}, {"type": 1}, None])
def test_handshake_form_drops_only_output_schemas_that_describe_no_object(schema: object) -> None:
    assert "outputSchema" not in era_form(tool(outputSchema=schema, execution={}), Era.HANDSHAKE)
    assert "outputSchema" in era_form(tool(outputSchema=schema), Era.MODERN)


def test_handshake_form_is_otherwise_untouched() -> None:
    for raw in (tool(outputSchema={"type": "object"}, execution={}), tool(description='"outputSchema"')):
        assert in_era(Kind.TOOL, raw, Era.HANDSHAKE) == raw


def test_modern_form_has_no_execution() -> None:
    assert "execution" not in era_form(tool(execution={"taskSupport": "optional"}), Era.MODERN)
    raw = tool(_meta={"execution": 1})
    assert in_era(Kind.TOOL, raw, Era.MODERN) == raw
    assert in_era(Kind.PROMPT, prompt(execution=1), Era.MODERN) == prompt(execution=1)


@pytest.mark.parametrize(
    ("execution", "kept"),
    [
        ({"taskSupport": "required"}, None),
        ({"taskSupport": "optional"}, None),
        ({"taskSupport": "required", "x-future": 1}, {"x-future": 1}),
        ({"taskSupport": "forbidden"}, {"taskSupport": "forbidden"}),
        ({"x-future": 1}, {"x-future": 1}),
        ({"taskSupport": "some-day"}, None),
        ({"taskSupport": 5}, None),
        ({"taskSupport": None}, None),
    ],
)
def test_handshake_form_offers_no_tasks(execution: object, kept: object) -> None:
    assert era_form(tool(execution=execution), Era.HANDSHAKE).get("execution") == kept


def traits(kind: Kind, raw: bytes) -> Traits:
    (found,), _ = parse(kind, [raw], "s")
    return found.traits


@pytest.mark.parametrize(
    ("annotations", "hints"),
    [
        ({}, _Hints(read_only=False, destructive=True, idempotent=False, open_world=True)),
        ({"title": "T", "readOnlyHint": None, "destructiveHint": None}, _Hints()),
        ({"readOnlyHint": False}, _Hints()),
        ({"readOnlyHint": True}, _Hints(read_only=True, destructive=False, idempotent=True)),
        ({"readOnlyHint": True, "destructiveHint": True}, _Hints()),
        ({"readOnlyHint": True, "idempotentHint": False}, _Hints(read_only=True, destructive=False)),
        ({"destructiveHint": False, "openWorldHint": False}, _Hints(destructive=False, open_world=False)),
        ({"idempotentHint": True}, _Hints(idempotent=True)),
    ],
)
def test_hints_have_the_specifications_defaults(annotations: dict[str, object], hints: _Hints) -> None:
    assert traits(Kind.TOOL, tool(annotations=annotations)) == Traits(hints=hints)


@pytest.mark.parametrize(
    ("members", "tags"),
    [
        ({"tags": ["a", "b"]}, {"a", "b"}),
        ({"_meta": {"tags": ["a"]}}, {"a"}),
        ({"_meta": {"fastmcp": {"tags": ["jira", "toolset:x"]}}}, {"jira", "toolset:x"}),
        ({"_meta": {"_fastmcp": {"tags": ["old"]}}, "tags": ["own"]}, {"old", "own"}),
        ({"tags": ["a", 5, None, ["b"], "x" * 201]}, {"a"}),
        ({"tags": [f"t{n:03}" for n in range(500)]}, {f"t{n:03}" for n in range(100)}),
        ({"tags": "a"}, set()),
        ({"tags": {"a": True}}, set()),
        ({"_meta": {"fastmcp": ["tags"], "_fastmcp": 5, "tags": None}}, set()),
        ({"_meta": None}, set()),
        ({"_meta": []}, set()),
    ],
)
def test_tags_are_read_where_servers_put_them_and_odd_ones_passed_over(
    members: dict[str, object], tags: set[str]
) -> None:
    for kind, raw in ((Kind.TOOL, tool), (Kind.RESOURCE, resource), (Kind.TEMPLATE, template), (Kind.PROMPT, prompt)):
        assert traits(kind, raw(**members)).tags == tags
