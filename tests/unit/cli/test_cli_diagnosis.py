"""The verdicts of `mcp-hub doctor`, as a table over states, codes and lists."""

import pytest
from msgspec import UNSET

from mcp_hub.cli.render.diagnosis import Diagnosis, diagnose
from mcp_hub.cli.render.servers import status_of
from mcp_hub.codes import CODES, SERVERS
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import UpstreamState

BAD = "tool u is left out: its inputSchema is not of type object"
UNSTEADY = "tools: the list is another one at each reading"


def server(state: UpstreamState, reason: str | None = None, code: str | None = None, **more: object) -> ServerInfo:
    said = {"reason": UNSET if reason is None else reason, "code": UNSET if code is None else code}
    return ServerInfo("s", state.value, 0, **said, **more)  # type: ignore[arg-type]  # by name


def verdict(*about: object, **more: object) -> Diagnosis:
    return diagnose(server(*about, **more))  # type: ignore[arg-type]  # as `server` takes it


NOT_READY = (UpstreamState.FAILED, UpstreamState.BACKING_OFF, UpstreamState.STARTING, UpstreamState.INCOMPATIBLE)


@pytest.mark.parametrize("state", NOT_READY)
@pytest.mark.parametrize("code", SERVERS)
def test_server_that_is_not_ready_keeps_its_code_and_gets_its_advice(state: UpstreamState, code: str) -> None:
    found = verdict(state, "any sentence", code)
    assert (found.code, found.problem, found.fix) == (code, "any sentence", CODES[code].fix)


def test_server_that_only_just_started_is_slow() -> None:
    assert verdict(UpstreamState.STARTING).code == "start_timeout"


@pytest.mark.parametrize(
    ("lists", "code"),
    [
        ({"entries": {"tool": 1}, "offered": {"tool": 1}}, "ok"),
        ({"entries": {"prompt": 1}, "offered": {"prompt": 1}}, "ok"),
        ({"entries": {"tool": 1}}, "ok"),
        ({"entries": {}, "offered": {}}, "no_tools"),
        ({"entries": {"tool": 1}, "offered": {}}, "all_filtered"),
        ({"entries": {"tool": 1}, "offered": {"tool": 1}, "unsteady": [UNSTEADY]}, "lists_unsteady"),
        (
            {"entries": {"tool": 2}, "offered": {"tool": 1}, "warnings": ["late", BAD], "quarantined": 1},
            "definitions_quarantined",
        ),
    ],
)
def test_ready_server_is_judged_by_what_clients_get(lists: dict[str, object], code: str) -> None:
    found = verdict(UpstreamState.READY, **lists)
    assert found.code == code and found.fix == CODES[code].fix
    assert found.is_ok == (code == "ok")
    assert found.problem == BAD or code != "definitions_quarantined"
    assert found.problem == UNSTEADY or code != "lists_unsteady"


def test_disabled_server_and_one_that_rests_are_no_problem() -> None:
    assert verdict(UpstreamState.DISABLED).is_ok
    assert verdict(UpstreamState.STOPPED, "it starts when it is needed", "not_started", rests=True).is_ok
    assert not verdict(UpstreamState.STOPPED, "stopped", "stopped").is_ok


def test_last_lines_go_with_the_verdict() -> None:
    own = server(UpstreamState.FAILED, "exited with code 3. Last output: boom", "start_crashed", stderr=["a", "boom"])
    assert diagnose(own) == Diagnosis(status_of(own), "start_crashed", "exited with code 3", ("a", "boom"))
