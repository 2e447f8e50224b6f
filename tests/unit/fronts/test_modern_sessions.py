"""Sessions of modern requests over HTTP: what equal envelopes share, and what they never do."""

from collections.abc import Mapping

import msgspec
import pytest

from mcp_hub.errors import RpcError
from mcp_hub.fronts.http import streamable
from mcp_hub.fronts.http.streamable import modern_sessions
from mcp_hub.protocol.meta import CAPABILITIES, CLIENT_INFO, LOG_LEVEL, VERSION, RequestMeta, take_params
from mcp_hub.sessions.session import Caller

ENVELOPE = {VERSION: "2026-07-28", CLIENT_INFO: {"name": "a", "version": "1"}, CAPABILITIES: {"sampling": {}}}
ALICE, BOB = Caller("alice"), Caller("bob")


def meta(**changes: object) -> RequestMeta:
    names = {"level": LOG_LEVEL, "info": CLIENT_INFO, "capabilities": CAPABILITIES, "version": VERSION}
    envelope: Mapping[str, object] = ENVELOPE | {names[key]: value for key, value in changes.items()}
    return take_params(msgspec.Raw(msgspec.json.encode({"_meta": {**envelope, "progressToken": 7}})))[1]


def test_equal_envelopes_of_a_caller_share_what_was_derived_from_them_and_nothing_else() -> None:
    begin = modern_sessions()
    first = begin(ALICE, meta())
    first.subscriptions["git", "file:///a"] = "file:///a"
    first.offer.derive("facts")
    first.end()
    second = begin(ALICE, meta())
    assert (second.offer.facts, second.capabilities, second.client_info["name"]) == ("facts", {"sampling": {}}, "a")
    assert second.id != first.id and second.subscriptions == {} and not second.is_over


@pytest.mark.parametrize(
    ("caller", "changes"),
    [(BOB, {}), (ALICE, {"level": "debug"}), (ALICE, {"info": {"name": "b"}}), (ALICE, {"capabilities": {}})],
    ids=["caller", "level", "client", "capabilities"],
)
def test_envelopes_that_differ_share_nothing(caller: Caller, changes: dict[str, object]) -> None:
    begin = modern_sessions()
    first, other = begin(ALICE, meta()), begin(caller, meta(**changes))
    assert other.offer is not first.offer and other.caller == caller
    assert other.log_level == changes.get("level") and other.capabilities == changes.get(
        "capabilities", {"sampling": {}}
    )


def test_the_mode_of_a_list_is_kept_by_its_session_alone() -> None:
    begin = modern_sessions()
    begin(ALICE, meta()).offer.settle("search")
    second, third = begin(ALICE, meta()), begin(ALICE, meta())
    assert second.offer.mode is None and third.offer is second.offer


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamable, "_CLIENTS", 2)
    begin = modern_sessions()
    first = begin(ALICE, meta()).offer
    for name in ("b", "c"):
        begin(ALICE, meta(info={"name": name}))
    assert begin(ALICE, meta()).offer is not first, "it made room"
    large = meta(info={"name": "x" * 5000})
    assert begin(ALICE, large).offer is not begin(ALICE, large).offer


def test_a_broken_envelope_is_refused_each_time() -> None:
    begin = modern_sessions()
    for _ in range(2):
        with pytest.raises(RpcError, match="9999-01-01|Unsupported"):
            begin(ALICE, meta(version="9999-01-01"))
