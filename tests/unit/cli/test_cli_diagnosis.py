"""The verdicts of `mcp-hub doctor`, as a table over states, codes and lists."""

import re

import pytest
from msgspec.structs import replace

from mcp_hub.catalog.filters import Filter
from mcp_hub.catalog.rules import ServerRules, ViewRules
from mcp_hub.catalog.view import build
from mcp_hub.cli.render.diagnosis import Diagnosis, diagnose
from mcp_hub.codes import CODES, SERVERS
from mcp_hub.types import Era, Kind, Snapshot, UpstreamState, UpstreamStatus

TOOL = b'{"name":"t","inputSchema":{"type":"object"}}'
UNFIT = b'{"name":"u","inputSchema":{"type":"array"}}'
PROMPT = b'{"name":"p"}'
FULL = Snapshot("s", Era.HANDSHAKE, {Kind.TOOL: (TOOL,)})


def verdict(status: UpstreamStatus, offered: Snapshot | None = None, tools: Filter | None = None) -> Diagnosis:
    rules = ServerRules() if tools is None else ServerRules(tools=tools)
    view = build([] if offered is None else [offered], ViewRules({"s": rules}))
    return diagnose(status, offered, view)


NOT_READY = (UpstreamState.FAILED, UpstreamState.BACKING_OFF, UpstreamState.STARTING, UpstreamState.INCOMPATIBLE)


@pytest.mark.parametrize("state", NOT_READY)
@pytest.mark.parametrize("code", SERVERS)
def test_server_that_is_not_ready_keeps_its_code_and_gets_its_advice(state: UpstreamState, code: str) -> None:
    found = verdict(UpstreamStatus("s", state, "any sentence", code=code))
    assert (found.code, found.problem, found.fix) == (code, "any sentence", CODES[code].fix)


def test_server_that_only_just_started_is_slow() -> None:
    assert verdict(UpstreamStatus("s", UpstreamState.STARTING)).code == "start_timeout"


@pytest.mark.parametrize(
    ("offered", "hides", "code"),
    [
        (FULL, None, "ok"),
        (replace(FULL, lists={Kind.PROMPT: (PROMPT,)}), None, "ok"),
        (replace(FULL, lists={}), None, "no_tools"),
        (FULL, Filter(deny=("*",)), "all_filtered"),
        (replace(FULL, lists={Kind.TOOL: (TOOL, UNFIT)}), None, "definitions_quarantined"),
    ],
)
def test_ready_server_is_judged_by_what_clients_get(offered: Snapshot, hides: Filter | None, code: str) -> None:
    found = verdict(UpstreamStatus("s", UpstreamState.READY), offered, hides)
    assert found.code == code and found.fix == CODES[code].fix
    assert found.is_ok == (code == "ok")


def test_quarantined_definition_is_named_with_its_reason() -> None:
    offered = replace(FULL, lists={Kind.TOOL: (TOOL, UNFIT)})
    assert re.match(r"tool u: .*type", verdict(UpstreamStatus("s", UpstreamState.READY), offered).problem)


def test_disabled_server_is_no_problem() -> None:
    assert verdict(UpstreamStatus("s", UpstreamState.DISABLED)).is_ok


def test_last_lines_go_with_the_verdict() -> None:
    status = UpstreamStatus(
        "s", UpstreamState.FAILED, "exited with code 3. Last output: boom", stderr=("a", "boom"), code="start_crashed"
    )
    assert verdict(status) == Diagnosis(status, "start_crashed", "exited with code 3", ("a", "boom"))
