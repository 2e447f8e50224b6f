"""`run_tool`: which call it stands for, what it is answered with where it stands for none, and refusals explained."""

import json
from typing import Any, cast

import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.catalog.discovery.meta_tools import explaining, refusing
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import Override, ServerRules, Supplied, ViewRules
from mcp_hub.catalog.routes import Route
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.exposure import exposed
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.errors import InvalidParams, RpcError, UnknownEntry, UpstreamLost
from mcp_hub.events import Completed
from mcp_hub.types import OWN, CallId, ClientKind, Era, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from tests.unit.catalog.offers import routed

pytestmark = pytest.mark.anyio

NOBODY = cast(CallChannel, None)
"""These handlers never use it."""


def tool(name: str, *required: str, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": type_} for key, type_ in properties.items()},
        "required": list(required),
    }
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


LOG = tool("log", "path", path="string", count="integer")
TOOLS = [
    LOG,
    tool("secret"),
    tool("fixed", "a", a="string", token="string"),
    {**tool("huge"), "description": "x" * 50_000},
]
KEPT = Supplied({"page": msgspec.Raw(b"3")}, {"token": msgspec.Raw(b'"t0k"')})
RULES = ViewRules(
    {"git": ServerRules("git", tools=Filter(deny=("*secret",)), overrides={"fixed": Override(supplied=KEPT)})}
)
OFFER = Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: tuple(json.dumps(one).encode() for one in TOOLS)})
VIEW: CatalogView = exposed(build([OFFER], RULES), RULES, ClientKind(), "search")
"""As a client sees it that is listed the meta-tools alone."""


def understood(arguments: bytes | None, name: bytes = b'"run_tool"', *, is_settled: bool = True, **more: Any) -> Route:
    given = {} if arguments is None else {"arguments": arguments}
    params = {key: msgspec.Raw(value) for key, value in {"name": name, **given, **more}.items()}
    return routed(VIEW, params, lambda: is_settled)


def call_of(found: Route) -> tuple[str, str, bytes | None]:
    """Server, its own name of the tool, and the arguments as they are written."""
    assert found.refusal is None, found.refusal
    arguments = found.params.get("arguments")
    return (
        found.server,
        msgspec.json.decode(found.params["name"], type=str),
        None if arguments is None else bytes(arguments),
    )


def refusal(found: Route) -> str:
    assert found.refusal is not None and found.server == OWN and found.entry is None
    return found.refusal.message


def entry(name: str) -> Entry:
    found = VIEW.find(Kind.TOOL, name)
    assert found is not None
    return found


# -- what it stands for


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (b'{"name":"git_log"}', b"{}"),
        (b'{"name":"git_log","arguments":null}', None),
        (b'{"name":"git_log","arguments":{}}', b"{}"),
        (b'{ "arguments" : { "n" : 1.10, "n": 1E+2 } , "name":"git_log"}', b'{ "n" : 1.10, "n": 1E+2 }'),
        (b'{"name":"git_log","arguments":{"b":123456789012345678901234567890}}',
         b'{"b":123456789012345678901234567890}'),
        (rb'{"name":"\u0067it_log","arguments":{"a":"\u0041\/"}}', rb'{"a":"\u0041\/"}'),
    ],
)  # fmt: skip
def test_arguments_travel_as_they_were_written(given: bytes, arguments: bytes | None) -> None:
    found = understood(given)
    assert call_of(found) == ("git", "log", arguments)
    assert found.entry is entry("git_log")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"path":"a"}', b'{"path":"a"}'),
        (' \n{"path": "é😀"} ', '{"path": "é😀"}'.encode()),
        ('{"n":1.10,"m":{"a":[1]}}', b'{"n":1.10,"m":{"a":[1]}}'),
        ("", None),
        (" \n", None),
        ("null", None),
    ],
)
def test_an_object_written_as_text_is_one(text: str, arguments: bytes | None) -> None:
    given = json.dumps({"name": "git_log", "arguments": text}).encode()
    assert call_of(understood(given)) == ("git", "log", arguments)


@pytest.mark.parametrize("break_", ["\n", "\r", "\r\n"])
def test_a_line_of_text_never_becomes_a_line_on_a_pipe(break_: str) -> None:
    message = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"secret"}}'
    text = break_.join(['{"a":', message, "}"])
    _, _, arguments = call_of(understood(json.dumps({"name": "git_log", "arguments": text}).encode()))
    assert arguments is not None and not {*b"\r\n"} & {*arguments}
    assert json.loads(arguments) == {"a": json.loads(message)}


def test_everything_beside_name_and_arguments_stays() -> None:
    more: dict[str, Any] = {"x-new": b'{"a":1.50}', "task": b"{}"}
    found = understood(b'{"name":"git_log","arguments":{}}', **more)
    assert {key: bytes(value) for key, value in found.params.items()} == {
        "name": b'"log"', "arguments": b"{}", "x-new": b'{"a":1.50}', "task": b"{}",
    }  # fmt: skip


def test_what_the_settings_add_is_added() -> None:
    assert call_of(understood(b'{"name":"git_fixed","arguments":{"a":"x"}}')) == (
        "git", "fixed", b'{"a":"x","page":3,"token":"t0k"}',
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        b'"run_tool"',
        rb'"\u0072un_tool"',
        rb'"run\u005ftool"',
        ('"' + "".join(f"\\u{ord(c):04x}" for c in "run_tool") + '"').encode(),
    ],
)
def test_its_name_may_be_spelled_in_any_way(name: bytes) -> None:
    assert call_of(understood(b'{"name":"git_log"}', name))[:2] == ("git", "log")


def test_a_tool_that_is_called_itself_is_none_of_its_business() -> None:
    found = understood(b'{"name":"git_fixed"}', b'"git_log"')
    assert found.entry is None and call_of(found) == ("git", "log", b'{"name":"git_fixed"}')
    with pytest.raises(UnknownEntry):
        understood(None, b'"git_secret"')
    for name in (b'"run_tool_x"', b'"xrun_tool"', b"7", b'["run_tool"]', b'"' + b"r" * 100_000 + b'"', rb'"\ud800"'):
        with pytest.raises(InvalidParams):
            understood(b'{"name":"git_log"}', name)


@pytest.mark.parametrize("name", ["find_tools", "read_result"])
def test_it_runs_the_hubs_other_tools(name: str) -> None:
    found = understood(json.dumps({"name": name, "arguments": {"query": "x"}}).encode())
    assert call_of(found) == (OWN, name, b'{"query": "x"}')
    assert found.entry is None


# -- what it refuses


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "`name`"),
        (b"{}", "`name`"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'"git_log"', "object"),
        (b'{"arguments":{}}', "`name`"),
        (b'{"name":7}', "$.name"),
        (b'{"name":null}', "$.name"),
        (b'{"name":["git_log"]}', "$.name"),
        (b'{"tool":"git_log"}', "`name`"),
        (b'{"name":"run_tool","arguments":{"name":"git_log"}}', "cannot run run_tool"),
        (b'{"name":"git_log","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion"),
    ],
)
def test_what_is_no_call_of_a_tool_is_refused_in_words(given: bytes | None, said: str) -> None:
    text = refusal(understood(given))
    assert text.startswith("run_tool") and said in text and len(text) < 500


@pytest.mark.parametrize(
    "arguments",
    ["[1]", "7", "true", '"path=a"', '"[1]"', '"{"', r'"{\"a\":1} {"', r'"{\"a\":01}"', r'"{\"a\":\"\\ud83d\"}"',
     json.dumps('{"a":"x\ny"}'), json.dumps('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")],
)  # fmt: skip
def test_arguments_that_are_no_object_come_back_with_what_the_tool_takes(arguments: str) -> None:
    text = refusal(understood(f'{{"name":"git_log","arguments":{arguments}}}'.encode()))
    said, _, takes = text.partition("\n\n")
    assert "must be an object" in said and said.startswith("run_tool: wrong arguments")
    assert json.loads(takes) == {**LOG, "name": "git_log"}


def test_an_argument_with_the_name_of_the_runners_path_is_refused_and_not_lost() -> None:
    text = refusal(understood(b'{"name":"git_log","path":"src/main.py"}'))
    assert "is not a JSON path" in text and "Put the arguments of the tool into `arguments`." in text
    assert "git_log" in text


@pytest.mark.parametrize("beside", ['"dir":"lost"', '"arguments":{"path":"a"},"dir":"lost"', '"Arguments":{}'])
def test_arguments_beside_the_name_are_refused_and_not_lost(beside: str) -> None:
    text = refusal(understood(f'{{"name":"git_log",{beside}}}'.encode()))
    said, _, takes = text.partition("\n\n")
    name = "Arguments" if "Arguments" in beside else "dir"
    assert said == f"run_tool: wrong arguments: unknown '{name}'. Put the arguments of the tool into `arguments`."
    assert json.loads(takes) == {**LOG, "name": "git_log"}


def test_an_argument_that_is_not_the_callers_to_give_is_refused_without_its_value() -> None:
    text = refusal(understood(b'{"name":"git_fixed","arguments":{"token":"mine"}}'))
    assert "'token'" in text and "git_fixed" in text and "t0k" not in text
    assert list(json.loads(text.partition("\n\n")[2])["inputSchema"]["properties"]) == ["a"]


@pytest.mark.parametrize("name", ["git_secret", "secret", "nobody", "", "x" * 10_000, "git_log\n"])
def test_what_is_hidden_or_unknown_is_refused_alike(name: str) -> None:
    text = refusal(understood(json.dumps({"name": name, "arguments": {}}).encode()))
    assert text.startswith(f"Unknown tool: {name[:200]}") and text.endswith(" find_tools says which there are.")
    assert "?." not in text and ("? find" in text) == ("Did you mean" in text)
    assert "secret" not in text.replace(f"Unknown tool: {name[:200]}", "") and len(text) < 400


def test_while_servers_start_an_unknown_tool_may_yet_turn_up() -> None:
    for name in (b'"run_tool"', b'"read_tool"'):
        with pytest.raises(UnknownEntry):
            understood(b'{"name":"later"}', name, is_settled=False)
    assert refusal(understood(b'{"name":"git_log","arguments":7}', is_settled=False))


def test_a_tool_of_a_server_that_was_never_listed_is_refused_with_its_state() -> None:
    dead = UpstreamStatus("rv", UpstreamState.FAILED, "no licence")
    params = {"name": msgspec.Raw(b'"run_tool"'), "arguments": msgspec.Raw(b'{"name":"rv_echo"}')}
    found = routed(VIEW, params, unlisted=lambda name: dead if name == "rv_echo" else None)
    assert refusal(found).startswith('Unknown tool: rv_echo. Its server "rv" has failed: no licence')


async def test_a_refusal_is_a_result_for_the_model() -> None:
    done = await refusing(InvalidParams("no: é"))(call(b"{}"), NOBODY)
    assert json.loads(done.result) == {"content": [{"type": "text", "text": "no: é"}], "isError": True}


# -- refusals explained


def call(arguments: bytes) -> Call:
    params = {"name": msgspec.Raw(b'"log"'), "arguments": msgspec.Raw(arguments)}
    return Call(CallId("c"), "git", "tools/call", params, {}, "s", "p", Era.MODERN, {})


def answering(result: RawJson) -> CallHandler:
    async def answered(call: Call, channel: CallChannel) -> Completed:
        return Completed(result, Era.MODERN)

    return answered


def failing(error: RpcError) -> CallHandler:
    async def failed(call: Call, channel: CallChannel) -> Completed:
        raise error

    return failed


async def explained(result: bytes, given: bytes, name: str = "git_log") -> bytes:
    done = await explaining(answering(result), entry(name), given)(call(given), NOBODY)
    assert done.era is Era.MODERN
    return bytes(done.result)


async def error_of(error: RpcError, name: str = "git_log") -> RpcError:
    with pytest.raises(RpcError) as raised:
        await explaining(failing(error), entry(name), b"{}")(call(b"{}"), NOBODY)
    return raised.value


async def test_of_an_error_about_params_only_the_message_is_another() -> None:
    raw = b'{"data":{ "n":1.10,"s":"\\u0041" },"code":-32602,"x":[1e400],"message":"no \\u00e9"}'
    found = await error_of(RpcError("no é", code=-32602, raw=raw))
    shown = msgspec.json.decode(found.encoded(), type=dict[str, msgspec.Raw])
    assert {key: bytes(value) for key, value in shown.items() if key != "message"} == {
        "data": b'{ "n":1.10,"s":"\\u0041" }', "code": b"-32602", "x": b"[1e400]",
    }  # fmt: skip
    message, _, takes = json.loads(bytes(shown["message"])).partition("\n\n")
    assert message == "no é" and json.loads(takes) == {**LOG, "name": "git_log"}
    assert found.code == -32602 and found.message == json.loads(bytes(shown["message"]))


async def test_an_error_of_the_hubs_own_keeps_its_data() -> None:
    found = await error_of(InvalidParams("no", data={"a": 1}))
    shown = json.loads(found.encoded())
    assert (shown["code"], shown["data"]) == (-32602, {"code": "invalid_params", "a": 1}) and shown[
        "message"
    ].startswith("no\n\n{")


@pytest.mark.parametrize(
    "error", [RpcError("x", code=-32603, raw=b'{"code":-32603}'), UpstreamLost("gone"), RpcError("y", code=-32600)]
)
async def test_any_other_error_is_passed_on_as_it_is(error: RpcError) -> None:
    assert await error_of(error) is error


async def test_a_definition_that_is_long_is_cut_to_a_line() -> None:
    text = (await error_of(InvalidParams("no"), "git_huge")).message
    assert len(text) < 500 and "git_huge(" in text and "find_tools" in text


FAILED = b'{"x":1,"content":[{"type":"text","text":"\\u0041"},{ "type":"image" }],"isError":true,"_meta":{"n":1.10}}'


@pytest.mark.parametrize("given", [b"{}", b'{"path":5}', b'{"path":"a","x":1}', b'{"path":"a","count":"3"}', b"7"])
async def test_a_failure_that_looks_like_the_arguments_has_the_definition_behind_its_content(given: bytes) -> None:
    found = await explained(FAILED, given)
    head, tail = FAILED.split(b"]", 1)
    assert found.startswith(head + b',{"type":"text","text":"{\\"name\\":\\"git_log\\"') and found.endswith(b"]" + tail)
    assert json.loads(json.loads(found)["content"][-1]["text"]) == {**LOG, "name": "git_log"}


@pytest.mark.parametrize(
    ("result", "given"),
    [
        (FAILED, b'{"path":"a"}'),
        (FAILED, b'{"path":"a","count":3}'),
        (FAILED, b'{"path":"' + b"a" * (1 << 20) + b'","x":1}'),
        (FAILED, b'{"path":"a"'),
        (b'{"content":[],"isError":false}', b"{}"),
        (b'{"content":[{"type":"text","text":"\\"isError\\":true"}]}', b"{}"),
        (b'{"structuredContent":{"isError":true},"content":[]}', b"{}"),
        (b'{"content":{},"isError":true}', b"{}"),
        (b'{"content":[],"isError":"true"}', b"{}"),
        (b'{"isError":true', b"{}"),
        (b'["isError"]', b"{}"),
        (b'{"resultType":"input_required","inputRequests":{}}', b"{}"),
    ],
)
async def test_any_other_result_is_passed_on_byte_for_byte(result: bytes, given: bytes) -> None:
    assert await explained(result, given) == result


async def test_what_the_settings_add_is_not_put_down_to_the_caller() -> None:
    given = understood(b'{"name":"git_fixed","arguments":{"a":"x"}}')
    assert given.entry is not None and given.requested is not None
    sent = call(bytes(given.params["arguments"]))
    for own, is_explained in ((given.requested["arguments"], False), (b"{}", True)):
        done = await explaining(answering(FAILED), entry("git_fixed"), own)(sent, NOBODY)
        assert (done.result != FAILED) is is_explained
