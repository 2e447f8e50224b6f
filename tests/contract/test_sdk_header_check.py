"""The checks of the headers of modern requests, held against those of the installed SDK."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcp_hub.errors import RpcError
from mcp_hub.protocol.headers import check_arguments, check_request, check_version, header_text, repeated
from mcp_hub.protocol.jsonrpc.rpc_errors import HEADER_MISMATCH

VERSION, CAPABILITIES = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
SERVED, NAMED = "2026-07-28", "echo"
NAMES = ["", NAMED, "other", "Ümlaut", " x ", "=?base64?ZWNobw==?=", "=?base64?eA==?=", "42"]
SAID = [
    *NAMES,
    *("1", "1.0", "1.00", "1.5", "01", "-1", "true", "1e3", "-0", "100000000000000000000", "7" * 5000),
    *("=?base64?ZWNob=?=", "=?base64?eB==?=", "=?base64?e!A==?=", "=?base64?/w==?=", "=?base64??=", "=?BASE64?eA==?="),
    *("=?base64?MQ==?=", "=?base64?MS4w?=", "=?base64?\xe9?="),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 42, 1.0, 1.5, -0.0, 10**20, 1e20, float("nan"), float("inf"), 10**5000, 10**4999),
    *([], {}, "1", "1.0", "true", *NAMES),
]
TEXTS = st.sampled_from(NAMES)
HEADERS = st.sampled_from(SAID)


def verdict(check: Callable[[], object]) -> tuple[int, Any] | None:
    """Code and data of the refusal."""
    try:
        found = check()
    except RpcError as error:
        return error.code, error.data
    return (found.code, found.data) if isinstance(found, inbound.InboundLadderRejection) else None


def agreed(own: Callable[[], object], theirs: Callable[[], object]) -> None:
    try:
        expected = verdict(theirs)
    except ValueError:  # its decoder's, about what is no ASCII within the Base64 form
        expected = HEADER_MISMATCH, None
    assert verdict(own) == expected


@given(
    method=st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", "x/y"]),
    params=st.one_of(
        st.just({}),
        st.fixed_dictionaries({"_meta": st.none() | st.just([])}),
        st.fixed_dictionaries(
            {
                "_meta": st.fixed_dictionaries(
                    {},
                    optional={
                        VERSION: st.sampled_from([SERVED, SERVED, SERVED, "2099-01-01", None, 7, []]),
                        CAPABILITIES: st.just({}),
                    },
                )
            },
            optional={"name": TEXTS, "uri": TEXTS},
        ),
    ),
    headers=st.fixed_dictionaries(
        {},
        optional={
            "mcp-protocol-version": st.sampled_from([SERVED, SERVED, "2099-01-01", "7"]),
            "mcp-method": st.sampled_from(["tools/call", "prompts/get", "resources/read", "tools/list", "x/y"]),
            "mcp-name": HEADERS,
        },
    ),
)
@example(method="x/y", params={"_meta": {VERSION: None, CAPABILITIES: {}}}, headers={"mcp-method": "x/y"})
def test_requests_are_refused_alike(method: str, params: dict[str, Any], headers: dict[str, str]) -> None:
    body = {"method": method, "params": params}
    agreeing = _agreeing(method, params)
    for given_headers in (headers, {**headers, "mcp-method": method}, agreeing):
        agreed(
            lambda there=given_headers: check_request(method, params, there),  # type: ignore[misc]
            lambda there=given_headers: inbound.classify_inbound_request(body, headers=there),  # type: ignore[misc]
        )


def _agreeing(method: str, params: dict[str, Any]) -> dict[str, str]:
    meta = params.get("_meta") or {}
    name = params.get(inbound.NAME_BEARING_METHODS.get(method, ""), "")
    return {
        "mcp-method": method,
        "mcp-protocol-version": str(meta.get(VERSION)) if meta else "",
        "mcp-name": inbound.encode_header_value(str(name)),
    }


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["string", "integer", "boolean", "number", None])
def test_arguments_are_refused_alike(kind: str | None, nested: bool) -> None:
    annotated: dict[str, Any] = {"type": kind, "x-mcp-header": "Region"}
    inner = {"type": "object", "properties": {"b": annotated}}
    schema = {"type": "object", "properties": {"a": inner if nested else annotated}}
    for value in VALUES:
        arguments = {"a": {"b": value} if nested else value}
        rendered = inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments).values()
        for header in (None, *SAID, *rendered):
            headers = {} if header is None else {"mcp-param-region": header}
            agreed(
                lambda: check_arguments(schema, arguments, headers),  # noqa: B023
                lambda: inbound.validate_mcp_param_headers(schema, arguments, headers),  # noqa: B023
            )


@given(header=st.none() | HEADERS | st.text(max_size=20).map(lambda text: f"=?base64?{text}?="))
def test_headers_say_the_same(header: str | None) -> None:
    try:
        theirs = inbound.decode_header_value(header)
    except ValueError:
        theirs = None
    assert header_text(header) == theirs


@given(st.lists(st.sampled_from(["Mcp-Name", "mcp-name", "mcp-method", "Accept", "accept"])))
def test_routing_headers_are_there_once(names: list[str]) -> None:
    theirs = inbound.find_duplicated_routing_header([(name, "x") for name in names])
    assert (theirs is not None) == bool(repeated(names) & {"mcp-name", "mcp-method"})


@given(st.sampled_from([SERVED, "2025-11-25", "2099-01-01", ""]))
def test_versions_are_refused_alike(version: str) -> None:
    agreed(lambda: check_version(version), lambda: inbound.unsupported_protocol_version_rejection(version))
