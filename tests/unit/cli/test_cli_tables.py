"""States of servers for people: reasons without doubled output, protocols, no secrets."""

from collections.abc import Sequence

import anyio
import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mcp_hub import errors
from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.following import exit_code
from mcp_hub.cli.access.waiting import starting_text
from mcp_hub.cli.commands.clients.import_dialog import saving
from mcp_hub.cli.render.servers import notices, server_data, server_table, status_of
from mcp_hub.cli.render.tables import print_outcome, protocol, reason, reasons
from mcp_hub.cli.trials import MeasuredCosts
from mcp_hub.masking import learn
from mcp_hub.protocol.rest.servers import FlagInfo, RefusedInfo, SandboxInfo, ServerInfo, UnapprovedInfo
from mcp_hub.types import Era, LogFlow, UpstreamState, UpstreamStatus, has_settled, not_ready

pytestmark = pytest.mark.anyio

READY = UpstreamStatus("git", UpstreamState.READY)
DOWN = UpstreamStatus("fs", UpstreamState.FAILED, "command not found: npx")
YOUNG = UpstreamStatus("db", UpstreamState.STARTING)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, ""),
        ("exited with code 3", "exited with code 3"),
        ("exited with code 3. Last output: a | b", "exited with code 3"),
        ("exited. Last output: a (gave up after 6 failures in 60 s)", "exited (gave up after 6 failures in 60 s)"),
    ],
)
def test_reason_comes_without_the_output(text: str | None, said: str) -> None:
    assert reason(UpstreamStatus("s", UpstreamState.FAILED, text)) == said


def test_data_of_a_server_are_those_of_rest_and_count_what_clients_get() -> None:
    assert (
        protocol(UpstreamStatus("s", UpstreamState.READY, era=Era.MODERN, version="2026-07-28"))
        == "2026-07-28 (modern)"
    )
    assert protocol(UpstreamStatus("s", UpstreamState.READY, era=Era.HANDSHAKE)) == "handshake"
    assert protocol(DOWN) == ""
    own = ServerInfo("git", "ready", 0, entries={"tool": 3, "prompt": 1})
    assert [server_data(own)[kind] for kind in ("tools", "prompts", "resources")] == [3, 1, 0]
    assert server_data(replace(own, offered={"tool": 2}))["tools"] == 2
    assert server_data(replace(own, offered={}))["tools"] == 0
    listed = "2026-11-20T11:00:00.000Z"
    own = ServerInfo("git", "failed", 2, reason="x", code="y", era="modern", version="z", pid=7, listed=listed)
    assert status_of(own) == UpstreamStatus(
        "git", UpstreamState.FAILED, "x", Era.MODERN, "z", restarts=2, pid=7, listed_at=1795172400.0, code="y"
    )


def test_reasons_hold_neither_secrets_nor_control_characters() -> None:
    status = UpstreamStatus("s", UpstreamState.FAILED, "bad key hunter22", stderr=("\x1b[31mhunter22",))
    learn(["hunter22"])
    assert reasons([status]) == [("s has failed: bad key ***", ""), ("  | \\x1b[31m***", "dim")]


def test_hub_that_ends_promises_no_restart_and_its_servers_have_failed() -> None:
    down = UpstreamStatus("s", UpstreamState.BACKING_OFF, "exited. Read its log.", code="start_crashed", listed_at=1)
    ((line, _),) = reasons([down])
    assert line.startswith("s is restarted soon: exited. Read its log. [start_crashed] Its list is from ")
    assert line.endswith(" ago.")
    assert reasons([down], ends=True)[0][0].startswith("s has failed: exited.")
    servers = [ServerInfo("a", "backing_off", 0, reason="exited"), ServerInfo("b", "starting", 0)]
    states = [column for column in server_table(servers, ends=True).columns if column.header == "state"]
    assert [str(cell) for cell in states[0].cells] == ["failed", "starting"]
    (state,) = [column for column in server_table(servers).columns if column.header == "state"]
    assert [str(cell) for cell in state.cells] == ["backing_off", "starting"]


def test_outcome_names_each_server_that_does_not_work_and_promises_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    learn(["hunter22"])
    absent = [
        UpstreamStatus("a", UpstreamState.BACKING_OFF, "exited with code 1. Last output: x | hunter22", failures=2),
        UpstreamStatus(
            "b", UpstreamState.FAILED, "environment variable B is not set. Set it.", code="variable_not_set"
        ),
        UpstreamStatus("c", UpstreamState.STARTING),
    ]
    print_outcome(9, absent)
    out, err = capsys.readouterr()
    assert out == "9 of 12 servers work; 3 need you:\n"
    assert err.splitlines()[:3] == [
        "  a has failed: exited with code 1. Last output: ***",
        "  b needs a value: environment variable B is not set. Set it. [variable_not_set]",
        "  c has not started in time",
    ]
    for working, said in ((0, "No servers yet."), (1, "The server works."), (2, "All 2 servers work.")):
        print_outcome(working, [])
        assert capsys.readouterr() == (f"{said}\n", "")
    print_outcome(1, absent[:1])
    assert capsys.readouterr().out == "1 of 2 servers works; 1 needs you:\n"


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        (
            MeasuredCosts(91, 16708, 674, mode="signatures"),
            "s cost 16,708 tokens in every session; through the hub 674",
        ),
        (MeasuredCosts(21, 4143, 4392, budget=8000), " 4,392: up to 8,000 it lists all of them in full."),
        (MeasuredCosts(1, 90, 536, mode="names"), "1 tool costs 90 tokens in every session; through the hub 536, "),
        (MeasuredCosts(2, 9000, 9100, expose="full"), "has it list all of them (expose: full)."),
    ],
)
def test_saving_is_one_sentence_also_where_nothing_is_saved(costs: MeasuredCosts, said: str) -> None:
    assert said in saving(costs) and saving(costs).count(". ") == 0


@pytest.mark.parametrize(
    ("logs", "shown"),
    [(LogFlow("shared", sent=9), "shared"), (LogFlow("hub", sent=1, kept=26), "hub (26)"), (UNSET, "")],
)
def test_a_row_names_the_rule_for_logs_and_counts_what_was_kept(logs: LogFlow | UnsetType, shown: str) -> None:
    made = server_table([ServerInfo("git", "ready", 0, logs=logs)])
    (column,) = (column for column in made.columns if column.header == "logs")
    assert list(column.cells) == [shown]


def test_of_many_notices_about_a_server_ten_are_shown() -> None:
    tools = [UnapprovedInfo(f"t{number}", "new", [], held=False) for number in range(12)]
    flags = [FlagInfo("t", "hidden", "name", "why", "text")] * 11
    found = notices([ServerInfo("a b", "ready", 0, unapproved=tools, flags=flags)])
    assert [own.code for own in found] == ["tool_not_approved"] * 11 + ["suspicious_tool"] * 11
    assert found[10].message == "2 more, see and approve: mcp-hub approve 'a b'"
    assert (found[11].message, found[21].message) == ("tool t: name: why: text", "1 more flag of this server")


BOXED = SandboxInfo(
    "on", "hosts", 3, hosts=["api.example.com"],
    latest=[RefusedInfo("read", "/home/a/k", "no", "2026-11-20T11:00:00.000Z", 3, "read", "/home/a/k")],
    lists={"read": ["~/a"], "net": []},
)  # fmt: skip


def test_refusals_of_a_sandbox_are_a_notice_with_the_line_to_add_and_the_command() -> None:
    rows: list[tuple[SandboxInfo | UnsetType, str | None]] = [
        (
            BOXED,
            'the sandbox refused 3 attempts, last to read /home/a/k (no); to allow it, set read: ["~/a", "/home/a/k"]. '
            "Show them: mcp-hub sandbox 'a b'",
        ),
        (
            replace(BOXED, lists={}),  # of an older hub, or with more entries than are shown
            "the sandbox refused 3 attempts, last to read /home/a/k (no); "
            "to allow it, add \"/home/a/k\" to the list read. Show them: mcp-hub sandbox 'a b'",
        ),
        (BOXED.without_names(), "the sandbox refused 3 attempts. Show them: mcp-hub sandbox 'a b'"),
        (replace(BOXED, refused=0, latest=[]), None),
        (UNSET, None),
    ]
    for sandbox, message in rows:
        listed = notices([ServerInfo("a b", "ready", 0, sandbox=sandbox)])
        assert [own.message for own in listed] == ([] if message is None else [message])
        assert all(own.code == "sandbox_refused" for own in listed)
    failed = ServerInfo("a", "failed", 0, "refuses to read /home/a/k. If", "sandbox_refused", sandbox=BOXED)
    assert not notices([failed])
    assert [own.message for own in notices([replace(failed, reason="another")], ends=True)] == [
        'the sandbox refused 3 attempts, last to read /home/a/k (no); to allow it, set read: ["~/a", "/home/a/k"]'
    ]
    assert "sandbox" not in server_data(ServerInfo("a", "ready", 0))
    assert server_data(ServerInfo("a", "ready", 0, sandbox=BOXED))["sandbox"]["latest"][0]["target"] == "/home/a/k"


def test_columns_of_sandboxes_and_skills_are_there_where_a_server_has_some() -> None:
    states: list[SandboxInfo | UnsetType] = [
        BOXED, SandboxInfo("absent", "any", 0), SandboxInfo("pending", "any", 0), UNSET
    ]  # fmt: skip
    servers = [ServerInfo(name, "ready", 0, sandbox=box) for name, box in zip("abcd", states, strict=True)]
    (column,) = [column for column in server_table(servers).columns if column.header == "sandbox"]
    assert [*map(str, column.cells)] == ["on", "absent", "pending", ""]
    assert "sandbox" not in [column.header for column in server_table(servers[3:]).columns]
    few, none = ServerInfo("folder", "ready", 0, offered={"skill": 3}), ServerInfo("git", "ready", 0)
    (skills,) = [column for column in server_table([few, none]).columns if column.header == "skills"]
    assert list(skills.cells) == ["3", "0"]
    assert "skills" not in [column.header for column in server_table([none]).columns]


def test_server_is_ready_or_has_settled_once_its_first_start_is_over() -> None:
    again = UpstreamStatus("s", UpstreamState.STARTING, restarts=1)
    assert [has_settled(status) for status in (READY, DOWN, YOUNG, again)] == [True, True, False, True]
    assert starting_text([READY, YOUNG]) == "starting db …"
    assert starting_text([READY]) == ""
    disabled = UpstreamStatus("s", UpstreamState.DISABLED)
    assert not_ready([READY, disabled, DOWN]) == [DOWN]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnknownEntry("x"), 2),
        (errors.UnknownStream(), 2),
        *((kind("x"), 3) for kind in (errors.UpstreamUnavailable, errors.UpstreamLost, errors.DeadlineExceeded)),
        *((kind("x"), 3) for kind in (errors.HubStopping, errors.HubRestarted)),
        (errors.executor_lost("x", {}), 3),
        *((error, 1) for error in (errors.RpcError("x", code=-5), errors.InvalidParams("x"), errors.EventsGone(3))),
    ],
)
def test_exit_code_says_whose_error_it_is(error: errors.RpcError, code: int) -> None:
    assert exit_code(error) == code


UP = ServerInfo("a", "ready", 0)
FIRST = ServerInfo("a", "starting", 0)
TURN = ServerInfo("a", "starting", 1, reason="its first caller speaks the other era", code="restarted")
AGAIN = ServerInfo("a", "starting", 1, reason="exited with code 1", code="start_crashed")


@pytest.mark.parametrize(
    ("states", "questions"),
    [([UP], 1), ([FIRST, UP], 2), ([FIRST, TURN, UP], 3), ([TURN, AGAIN], 2), ([AGAIN], 1), ([FIRST], 0)],
)
async def test_server_on_its_way_up_is_waited_for(
    states: Sequence[ServerInfo], questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ServerInfo] = []

    async def statuses() -> list[ServerInfo]:
        asked.append(states[min(len(asked), len(states) - 1)])
        return [UP, asked[-1]]

    monkeypatch.setattr(waiting, "_SHORTEST", 0.0)
    monkeypatch.setattr(waiting, "_RUNNING", 0.5)
    with anyio.fail_after(240):
        await waiting.settle_running(statuses)
    assert len(asked) == questions or not questions
