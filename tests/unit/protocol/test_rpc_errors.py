"""Which error a caller of which era may see (protocol.md §3, "Lossless")."""

import json

import msgspec
import pytest

from mcp_hub import masking
from mcp_hub.errors import (
    Busy,
    EventsGone,
    RpcError,
    StoreError,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller, for_others, from_wire, url_elicitations
from mcp_hub.types import LAST_OUTPUT, Era, JsonObject, without_paths

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN


def upstream_error(code: int) -> RpcError:
    return from_wire(b'{"code":%d,"message":"no","data":{"x":1.10},"more":[1]}' % code)


def seen(code: int, era: Era) -> dict[str, object]:
    error = for_caller(upstream_error(code), era, "git")
    wire: dict[str, object] = json.loads(bytes(error.encoded()))
    assert wire["code"] == error.code
    return wire


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32019, -32100, 0, 7, 10**6])
def test_an_ordinary_error_passes_byte_for_byte(code: int, era: Era) -> None:
    raw = b'{"code":%d,"message":"no","data":{"x":1.10},"more":[1]}' % code
    assert bytes(for_caller(from_wire(raw), era, "git").encoded()) == raw


def test_a_malformed_error_is_shown_as_it_came_but_for_secrets() -> None:
    plain = b'{"code":"x", "message":"s3cret-one","n":1.10}'
    assert plain in bytes(from_wire(plain).encoded())
    masking.learn(["s3cret-one"])
    told = json.loads(bytes(from_wire(plain).encoded()))
    assert told["data"]["upstream"]["error"] == {"code": "x", "message": "***", "n": 1.1}
    for levels in (100, 600, 900, 5000, 100_000):  # some can be read, and are too deep for what hides texts
        deep = b'{"s3cret-one":' + b"[" * levels + b"]" * levels + b"}"
        assert b"s3cret" not in bytes(from_wire(deep).encoded()), levels


def test_an_error_of_the_hub_has_no_control_characters_for_a_terminal() -> None:
    error = RpcError("is failed: \x1b[31mred\x07\nline", data={"upstream": {"reason": "\x9b2J"}})
    assert json.loads(bytes(error.encoded())) == {
        "code": -32603,
        "message": "is failed: <U+001B>[31mred<U+0007>\nline",
        "data": {"code": "upstream_error", "upstream": {"reason": "<U+009B>2J"}},
    }
    raw = b'{"code":1,"message":"\\u001b[31m"}'
    assert bytes(from_wire(raw).encoded()) == raw, "what a server says in answer is its own"


@pytest.mark.parametrize("code", [-32020, -32022])
@pytest.mark.parametrize("era", Era)
def test_what_describes_the_hubs_own_hop_never_passes_as_such(code: int, era: Era) -> None:
    wire = seen(code, era)
    assert wire["code"] == -32603
    original = {"code": code, "message": "no", "data": {"x": 1.1}, "more": [1]}
    assert wire["data"] == {"code": "upstream_error", "upstream": {"server": "git", "error": original}}


NEEDS_URL = b'{"code":-32021,"message":"no","data":{"requiredCapabilities":{"elicitation":{"url":{}}}},"more":[1]}'


@pytest.mark.parametrize("era", Era)
def test_a_missing_capability_is_an_error_for_a_caller_who_lacks_it(era: Era) -> None:
    lacks: list[JsonObject] = [{}, {"elicitation": {}}, {"sampling": {}, "elicitation": {"form": {}}}]
    for lacking in lacks:
        assert for_caller(from_wire(NEEDS_URL), era, "git", lacking).encoded() == NEEDS_URL
    wire = json.loads(bytes(for_caller(from_wire(NEEDS_URL), era, "git", {"elicitation": {"url": {}}}).encoded()))
    assert wire["code"] == -32603 and wire["data"]["upstream"] == {"server": "git", "error": json.loads(NEEDS_URL)}


@pytest.mark.parametrize("data", ["null", '{"requiredCapabilities":[]}', '{"requiredCapabilities":{}}'])
def test_a_missing_capability_that_is_not_named_is_the_hubs_own(data: str) -> None:
    error = from_wire(f'{{"code":-32021,"message":"no","data":{data}}}'.encode())
    assert for_caller(error, MODERN, "git").code == -32603


def test_a_resource_that_was_not_found_has_another_code_in_the_modern_era() -> None:
    assert seen(-32002, HANDSHAKE)["code"] == -32002
    assert seen(-32002, MODERN) == {"code": -32602, "message": "no", "data": {"x": 1.1}, "more": [1]}


@pytest.mark.parametrize("code", [-32023, -32042, -32099])
def test_a_code_of_the_reserved_range_is_wrapped_for_a_modern_caller_only(code: int) -> None:
    assert seen(code, HANDSHAKE)["code"] == code
    wire = seen(code, MODERN)
    assert wire["code"] == -32603 and wire["message"] == "no"
    assert isinstance(wire["data"], dict) and wire["data"]["upstream"]["error"]["code"] == code


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize(
    "error", [Busy("b"), UnknownEntry("u", code=-32002, data={"uri": "x"}), UnknownStream(), EventsGone(3)]
)
def test_the_hubs_own_errors_pass_and_say_which_server_they_are_about(error: RpcError, era: Era) -> None:
    shown = for_caller(error, era, "git")
    assert (type(shown), shown.code, shown.message) == (type(error), error.code, error.message)
    assert shown.data == {**(error.data or {}), "upstream": {"server": "git"}}
    assert for_caller(error, era, None) is error


@pytest.mark.parametrize(
    "error", [UnknownEntry("u", symbol="odd_entry"), RpcError("s", code=1011, symbol="store_unavailable")]
)
def test_an_error_with_a_code_of_its_own_keeps_it_when_it_names_a_server(error: RpcError) -> None:
    shown = for_caller(error, MODERN, "git")
    assert shown.symbol == error.symbol
    assert json.loads(bytes(shown.encoded()))["data"] == {"code": error.symbol, "upstream": {"server": "git"}}
    assert for_caller(RpcError("r"), MODERN, "git").symbol == "upstream_error", "of any other it is the server's"


def test_what_an_error_of_the_hub_says_of_its_server_stays() -> None:
    named = UpstreamLost("l", data={"upstream": {"server": "ci"}})
    assert for_caller(named, MODERN, "git") is named
    data = for_caller(from_wire(b"5"), MODERN, "git").data
    assert data == {"upstream": {"server": "git", "error": msgspec.Raw(b"5")}}


ELICITATION = {"mode": "url", "elicitationId": "e", "url": "https://x/", "message": "m", "x-future": [1]}


def url_required(data: object, code: int = -32042) -> RpcError:
    return from_wire(json.dumps({"code": code, "message": "no", "data": data}).encode())


def test_urls_that_must_be_opened_first_become_questions_to_a_modern_caller() -> None:
    asked = url_elicitations(url_required({"elicitations": [ELICITATION, ELICITATION | {"url": "https://y/"}]}))
    assert asked is not None and list(asked) == ["elicitation-1", "elicitation-2"]
    (method, first), (_, second) = asked.values()
    assert method == "elicitation/create" and json.loads(bytes(second))["url"] == "https://y/"
    assert json.loads(bytes(first)) == {"mode": "url", "url": "https://x/", "message": "m", "x-future": [1]}


MALFORMED: list[object] = [
    *({}, [], [ELICITATION, 5], [ELICITATION] * 65),
    *([ELICITATION | {"mode": "form"}], [ELICITATION | {"url": None}], [{"mode": "url", "url": "https://x/"}]),
]


@pytest.mark.parametrize("data", [None, [], {}, *({"elicitations": found} for found in MALFORMED)])
def test_a_malformed_want_of_urls_asks_nothing(data: object) -> None:
    assert url_elicitations(url_required(data)) is None


def test_no_other_error_asks_for_urls() -> None:
    assert url_elicitations(url_required({"elicitations": [ELICITATION]}, code=-32041)) is None
    assert url_elicitations(RpcError("no")) is None


@pytest.mark.parametrize(
    "raw",
    [
        *(b"null", b'"broken"', b"5", b"[]", b"{}", b"{", b"[" * 10**5),
        *(b'{"code":"x","message":""}', b'{"code":1.5,"message":""}', b'{"code":null,"message":""}', b'{"message":""}'),
        *(b'{"code":7}', b'{"code":7,"message":null}', b'{"code":7,"message":{"a":1}}', b'{"code":7,"data":"no"}'),
        b'{"code":%s,"message":""}' % (b"9" * 5000),
    ],
)
def test_an_invalid_error_is_reported_with_the_original(raw: bytes) -> None:
    error = from_wire(raw)
    assert error.code == -32603 and error.raw is None and "malformed" in error.message
    assert error.data == {"upstream": {"error": msgspec.Raw(raw)}}


@pytest.mark.parametrize(
    "raw",
    [b'"it broke"', b'{"message":"it broke"}', b'{"code":"-32000","message":"it broke"}', b'["it broke"]',
     b'{"code":-1,"message":{"text":"it broke"}}', b'{"error":"it broke"}', b'{"code":-1,"description":"it broke"}'],
)  # fmt: skip
def test_words_of_a_malformed_error_reach_a_reader_of_its_message(raw: bytes) -> None:
    masking.learn(["s3cret-one"])
    assert from_wire(raw).message.endswith(": it broke")
    assert "s3cret" not in from_wire(raw.replace(b"it broke", b"s3cret-one")).message
    assert len(from_wire(raw.replace(b"it broke", b"x" * 10_000)).message) < 1500


def test_hub_codes_are_outside_of_what_json_rpc_reserves() -> None:
    for kind in (Busy, UpstreamLost):
        assert not -32768 <= kind.code <= -32000
    data = {"code": "busy", "n": 1}
    assert json.loads(bytes(Busy("b", data={"n": 1}).encoded())) == {"code": 1004, "message": "b", "data": data}


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("cannot open /home/ann/x: no", "cannot open … no"),
        ("File \"/opt/a b/x.py\", line 3, in y: '/srv/k'", "File …, line 3, in y: …"),
        ("-I/home/ann/x and ~/.ssh/id, file:///root/k", "-I… and … …"),
        ("ENOENT:/data/k (/var/x/y)", "ENOENT:… (…"),
        ("https://h.example:8443/mcp/v1?x=/a and http://[::1]/a/b", "https://h.example:8443/mcp/v1?x=/a and http://[::1]/a/b"),
        ("text/html, and/or GET /mcp ../x/y a//b", "text/html, and/or GET /mcp ../x/y a//b"),
        ("/" * 50_000 + "'/" * 50_000 + "a.b-" * 50_000, None),
    ],
)  # fmt: skip
def test_paths_of_this_machine_are_left_out_and_urls_stay(text: str, public: str | None) -> None:
    assert public is None or without_paths(text) == public
    without_paths(text)


def test_reason_for_others_names_no_path_and_keeps_what_a_program_needs() -> None:
    rows = {
        ("sandbox_rule", "sandbox: read: ~ is x"): "its sandbox refused a start",
        ("cannot_start", "cannot start /home/a b/c: no"): "the operator of the hub sees why",
        ("start_crashed", f"KeyError: 'K'{LAST_OUTPUT}File '/a/b.py' | K"): f"KeyError: 'K'{LAST_OUTPUT}File … | K",
    }  # fmt: skip
    for (code, reason), public in rows.items():
        about = {"server": "s", "state": "failed", "reason": reason, "code": code}
        error = for_others(UpstreamUnavailable(f'server "s" has failed: {reason}', data={"upstream": about}))
        shown = error.about_upstream["reason"]
        assert shown.startswith(public) and error.message == f'server "s" has failed: {shown}'
        assert type(error) is UpstreamUnavailable and error.about_upstream["code"] == code
    lost = for_others(UpstreamLost('server "s" lost its connection: it read /home/ann/x', data={"outcome": "unknown"}))
    assert (lost.message, lost.is_outcome_unknown) == ('server "s" lost its connection: it read …', True)
    sent = RpcError("/home/ann/x", raw=b'{"code":1,"message":"/home/ann/x"}')
    assert for_others(sent) is sent
    assert StoreError("store /home/a b/x.db: is full").public == "store: is full"
