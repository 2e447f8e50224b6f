import json

import msgspec
import pytest

from mcp_hub.errors import InvalidParams
from mcp_hub.protocol import meta
from mcp_hub.protocol.meta import modern_meta, take_meta
from mcp_hub.types import RawObject


def params(text: str) -> RawObject:
    return {"name": msgspec.Raw(b'"x"'), "_meta": msgspec.Raw(text.encode())}


def test_reserved_keys_are_taken_out_and_the_rest_stays_encoded() -> None:
    info = {"name": "c"}
    members = {meta.VERSION: "2026-07-28", meta.CLIENT_INFO: info, meta.CAPABILITIES: {}, meta.LOG_LEVEL: "info"}
    given = params(json.dumps({**members, "progressToken": "t", "x.y/z": {"n": 1}}))
    taken = take_meta(given)
    assert list(given) == ["name"], "params are left without it"
    assert taken.token == b'"t"' and taken.is_modern
    raws = (taken.version, taken.client_info, taken.capabilities, taken.log_level)
    assert [json.loads(bytes(raw or b"")) for raw in raws] == list(members.values())
    assert {key: json.loads(bytes(raw)) for key, raw in taken.rest.items()} == {"x.y/z": {"n": 1}}


@pytest.mark.parametrize("token", ["7", "-7", "0", "7.0", '"7"', '""', '"\\u0041"', "12345678901234567890123"])
def test_a_token_is_kept_as_it_was_written(token: str) -> None:
    assert take_meta(params(f'{{"progressToken": {token} }}')).token == token.encode()


@pytest.mark.parametrize("text", ["null", "[]", '{"progressToken":null}', "{}"])
def test_meta_without_members_counts_as_absent_which_is_of_the_handshake_era(text: str) -> None:
    taken = take_meta(params(text))
    assert taken == take_meta({})
    assert not taken.is_modern and taken.token is None and taken.rest == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, "_meta must be an object") for text in ("[1]", "5", '"x"', "true")),
        *((f'{{"progressToken":{token}}}', "progressToken") for token in ("1.5", "1e3", "true", "[]", "{}")),
    ],
)
def test_meta_or_a_token_of_another_type_is_invalid(text: str, reason: str) -> None:
    with pytest.raises(InvalidParams, match=reason):
        take_meta(params(text))


def test_reserved_members_that_are_null_count_as_absent() -> None:
    keys = ("protocolVersion", "clientInfo", "clientCapabilities", "logLevel")
    nulls = ",".join(f'"io.modelcontextprotocol/{key}":null' for key in keys)
    assert take_meta(params("{" + nulls + "}")).envelope == (None, None, None, None)


@pytest.mark.parametrize("level", ["debug", None])
def test_the_envelope_for_a_modern_server_is_what_it_would_take_out_again(level: str | None) -> None:
    made = modern_meta("2026-07-28", {"name": "hub"}, {"roots": {}}, level)
    taken = take_meta({"_meta": msgspec.Raw(msgspec.json.encode(made))})
    assert taken.is_modern and taken.rest == {} and taken.token is None
    assert taken.capabilities is not None and bytes(taken.capabilities) == b'{"roots":{}}'
    assert (taken.log_level is None) == (level is None)
