"""Which error a caller of which era may see (protocol.md §3, "Lossless")."""

import json

import pytest

from mcp_hub.errors import Busy, RpcError, UnknownEntry, UpstreamLost
from mcp_hub.protocol.rpc_errors import for_caller, from_wire
from mcp_hub.types import Era

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


@pytest.mark.parametrize("code", [-32020, -32022])
@pytest.mark.parametrize("era", Era)
def test_what_describes_the_hubs_own_hop_never_passes_as_such(code: int, era: Era) -> None:
    wire = seen(code, era)
    assert wire["code"] == -32603
    original = {"code": code, "message": "no", "data": {"x": 1.1}, "more": [1]}
    assert wire["data"] == {"upstream": {"server": "git", "error": original}}


def test_a_missing_capability_passes_to_a_modern_caller_whose_it_is() -> None:
    assert seen(-32021, MODERN)["code"] == -32021
    assert seen(-32021, HANDSHAKE)["code"] == -32603


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
    "error", [Busy("b"), UpstreamLost("l", data={"outcome": "unknown"}), UnknownEntry("u", code=-32002)]
)
def test_the_hubs_own_errors_pass(error: RpcError, era: Era) -> None:
    assert for_caller(error, era, "git") is error


@pytest.mark.parametrize(
    "raw",
    [b"null", b'"broken"', b"5", b"[]", b"{}", b'{"code":"x"}', b'{"code":1.5}', b'{"code":null}', b"{", b"[" * 10**5],
)
def test_an_error_that_is_none_is_told_as_such_with_the_original(raw: bytes) -> None:
    error = from_wire(raw)
    assert error.code == -32603 and error.raw is None and "malformed" in error.message


def test_an_error_without_a_message_still_passes() -> None:
    raw = b'{"code":7}'
    assert (from_wire(raw).code, from_wire(raw).message, bytes(from_wire(raw).encoded())) == (7, "", raw)


def test_hub_codes_are_outside_of_what_json_rpc_reserves() -> None:
    for kind in (Busy, UpstreamLost):
        assert not -32768 <= kind.code <= -32000
    assert json.loads(bytes(Busy("b", data={"n": 1}).encoded())) == {"code": 1004, "message": "b", "data": {"n": 1}}
