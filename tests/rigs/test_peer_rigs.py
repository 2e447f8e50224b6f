"""Short cases of rigs that put other servers or clients around a hub, and their tables; `make proof` runs them all."""

import dataclasses
import re
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import pytest
from msgspec.structs import replace

from rigs.attacks.cases import ATTACKS
from rigs.attacks.run import run_attacks
from rigs.attacks.table import tables, with_tables
from rigs.clients.clients import CLIENTS
from rigs.clients.deep import CHECKS, DEEP, DIRECT, MODES, PAGE, Difference, Measured, complaints, documented, table
from rigs.clients.drivers.steps import PROGRESS, Failed, OnProgress, progress
from rigs.clients.install import NotInstalled
from rigs.clients.known import KNOWN
from rigs.clients.record import difference
from rigs.clients.run import Outcome, Row
from rigs.clients.table import failures
from rigs.clients.tee import recorded
from rigs.clients.transcripts import FOLDER, read, steady
from rigs.conformance.arranged import arranged
from rigs.conformance.suite import SERVER_SCENARIOS, run_server_scenarios, suite_command
from rigs.hostile.cases import CASES as BAD_SERVERS
from rigs.hostile.plan import TOGETHER, groups, usual_rows
from rigs.hostile.run import run_together
from rigs.hostile.table import COLUMNS
from rigs.hostile.table import failures as broken_promises
from rigs.hostile_clients.cases import CASES as BAD_CLIENTS
from rigs.hostile_clients.cases import EXPECTED, RUNNING, WAITING, Site, flooded, site, told
from rigs.hostile_clients.doors import DOORS
from rigs.sandbox.cases import KINDS, WORKING
from rigs.sandbox.hostile.calls import ESCAPES
from rigs.sandbox.hostile.server import MODULES as ESCAPE_MODULES
from rigs.sandbox.real import (
    NETWORKED,
    Answered,
    Entry,
    NetworkTally,
    Tally,
    _cell,
    _net_cell,
    _refusal_cell,
    entries,
    possible_calls,
)
from rigs.sandbox.stand_in import Network, StandIn, stand_in
from rigs.sandbox.unchanged import Start, differences, read_start
from rigs.sandbox.world import HOSTILE
from tests.upstreams import faults

pytestmark = pytest.mark.anyio

HOSTILE_PAGE = Path(__file__).parents[2] / "docs" / "hostile.md"
ATTACKS_PAGE = HOSTILE_PAGE.with_name("attacks.md")
QUICK = {
    "confused", "overlap", "rebound", "shadow", "samename", "lookalike", "page", "environment", "neighbour", "writable",
    "rugtool", "rugprompt", "explicit", "explicitlater", "midsession",
}  # fmt: skip
"""Servers of attacks that together take seconds."""


async def test_bad_servers_change_nothing_for_a_good_one(tmp_path: Path) -> None:
    rows = groups(usual_rows(), TOGETHER)[-1]
    with anyio.fail_after(240):
        outcomes = await run_together(rows, tmp_path)
    assert broken_promises(outcomes) == [] and len(outcomes) == len(rows)


def test_escapes_of_every_language_have_a_kind_and_every_kind_an_escape() -> None:
    assert ESCAPE_MODULES  # which enter their escapes
    texts = [path.read_text("utf-8") for path in HOSTILE.iterdir() if path.suffix in (".mjs", ".c")]
    helpers = {*(name for names in WORKING.values() for name in names), "show-home", "show-proxy"}
    helpers |= {name for name in ESCAPES if name.startswith(("plant-", "poison-", "write-argument"))}
    names = {name for kind in KINDS for name in kind.names}
    assert set(ESCAPES) - helpers <= names
    assert [name for name in names - set(ESCAPES) if not any(_is_written(name, text) for text in texts)] == []


def _is_written(name: str, text: str) -> bool:
    """Whether a program has the escape, which it may enter with others of a list."""
    prefix, _, last = name.partition("-")
    return name in text or (prefix in ("read", "write", "unix") and f"'{last}'" in text)


def test_pinned_servers_have_a_version_and_a_registry() -> None:
    servers = entries()
    assert len(servers) == len({one.package for one in servers}) >= 60
    assert all(re.fullmatch(r"(npm|pypi):[@\w./-]+", one.package) and one.version[0].isdigit() for one in servers)
    networks = [one.net for one in servers if one.net is not None]
    assert len(networks) >= NETWORKED and all(one.hosts and one.tool and one.client for one in networks)


def test_public_servers_that_fail_inside_or_under_net_are_a_fault_beyond_their_share() -> None:
    tally, networks = Tally(), NetworkTally()
    tally.outside, tally.inside, networks.inside = 8, 6, NETWORKED
    assert "6 of them inside" in tally.summary(8) and networks.summary(20) and not tally.faults + networks.faults
    tally.inside, networks.inside = 5, NETWORKED - 1
    assert tally.summary(8) and networks.summary(20) and len(tally.faults) == len(networks.faults) == 1


def test_cells_about_public_servers_say_where_an_answer_came_from(tmp_path: Path) -> None:
    world = StandIn(tmp_path, {})
    world.requests += [("api.test", "/"), ("other.test", "/")]
    network = Network(["api.test"], "axios", "get")
    hint = 'add \\"api.test\\" to net'
    cells = {
        Answered(tools=3, called="get"): ("3 tools, `get`", "asked: "),
        Answered(tools=3, called="get", is_error=True, text="E | a"): (
            "3 tools, `get` (an error of the tool)", "asked: E / a"
        ),
        Answered(error="failed: x |  y"): ("failed: x / y", "asked: failed: x / y"),
        Answered(called="get", text=f"a {world.canary}"): ("0 tools, `get`", "answers"),
    }  # fmt: skip
    assert {one: (_cell(one), _net_cell(one, world, network)) for one in cells} == cells
    world.requests.clear()
    refused = Answered(called="get", text=hint, refusals=["sandbox_refused api.test"])
    assert _net_cell(refused, world, network).startswith("takes no proxy: ") and _cell(None) == "–"
    assert _refusal_cell(refused, network) == "refuses api.test; the server shows the line"
    assert _refusal_cell(dataclasses.replace(refused, text="no"), network) == "refuses api.test"
    assert _refusal_cell(dataclasses.replace(refused, refusals=["other.test"], text="no"), network) == "no refusal: no"
    assert Answered(text="EACCES: permission denied").is_refused and not Answered(text="fine").is_refused
    tools = [{"name": name, "inputSchema": {"required": needs}} for name, needs in
             (("write", []), ("read_one", ["a"]), ("list_all", []))]  # fmt: skip
    entry = Entry("s", "npm:s", "1")
    assert [name for name, _ in possible_calls(entry, tools, {})] == ["list_all", "read_one"]
    assert possible_calls(entry, tools[:1], {}) == [("write", {})] and possible_calls(entry, [], {}) == []
    assert possible_calls(dataclasses.replace(entry, tool="t", arguments={"p": "{data}/x"}), tools, {"data": "/d"}) == [
        ("t", {"p": "/d/x"})
    ]


def _start(hub: int, process: int, descriptor: int, *more: str) -> Start:
    """The start of `/bin/s` by system calls, with these numbers."""
    pipe = f"pipe2([{descriptor}, {descriptor + 1}], O_CLOEXEC) = 0"
    around = ['write(9, "?\\n", 2) = 2', pipe, f"vfork() = {process}", f'write(9, "+{process}\\n", 3)   = 3']
    calls = [f"close({descriptor})  = 0", *more, f"setsid() = {process}", 'execve("/bin/s", ["/bin/s"], ["A=b"]) = 0']
    traces = {
        hub: [*around, "landlock_add_rule(4) = 0"],
        process: [*calls, f"brk(NULL) = 0x{process}", f'read(0, "{hub}", 8) = 1', "exit(0)"],
    }
    return read_start(traces, ["/bin/s"], {})


def test_another_system_call_of_a_start_is_a_difference_and_other_numbers_are_not() -> None:
    first, again, masked = _start(70, 71, 22), _start(80, 82, 31), _start(70, 71, 22, "umask(077) = 022")
    assert first == again and first.execution == (["/bin/s"], {"A": "b"}) and len(first.hub) == 4
    assert first.calls == ["close(#0) = 0", "setsid() = PROCESS", "execve(COMMAND)", "brk(NULL) = ADDRESS"]
    assert first.confining == ["landlock_add_rule(4) = 0"]
    assert differences(first.process, masked.process, "s") == ["s: +umask(077) = 022"]


async def test_stand_in_answers_for_a_name_by_https_and_writes_it_down(tmp_path: Path) -> None:
    answers = {"api.example/v1?": "[1]", "api.example/v1": '{"word": "{canary}"}'}
    with anyio.fail_after(240):
        async with stand_in(tmp_path, answers) as world:
            trust = ssl.create_default_context(cafile=str(world.certificates))
            async with httpx2.AsyncClient(proxy=world.url, verify=trust, trust_env=False) as client:
                texts = [(await client.get(f"https://{name}")).text for name in ("api.example/v1", "other.example/")]
                texts.append((await client.get("http://plain.example/robots.txt")).text)
    assert texts[0] == "[1]" and world.canary in texts[1] and texts[2].startswith("User-agent")
    assert world.requests == [("api.example", "/v1"), ("other.example", "/"), ("plain.example", "/robots.txt")]


def test_every_mode_of_the_fixture_and_every_sort_of_garbage_is_a_bad_server() -> None:
    options = [case.options for case in BAD_SERVERS]
    modes = {one[one.index("--mode") + 1] for one in options if "--mode" in one}
    assert modes == set(faults.MODES) - {"normal"}
    assert {case.arguments["variant"] for case in BAD_SERVERS if case.tool == "garble"} == set(faults.GARBAGE)


def test_documented_table_of_bad_servers_has_these_rows() -> None:
    text = HOSTILE_PAGE.read_text("utf-8")
    shown = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert shown == [COLUMNS[0], "---", *(row.case.name for row in usual_rows())]


@pytest.mark.proof
async def test_attacks_come_to_what_the_page_says(tmp_path: Path) -> None:
    chosen = [one for one in ATTACKS if one.server in QUICK]
    assert len(chosen) == len(QUICK)
    with anyio.fail_after(600):
        outcomes = await run_attacks(tmp_path, chosen)
    page = ATTACKS_PAGE.read_text("utf-8").splitlines()
    assert [line for table in tables(outcomes).values() for line in table if line not in page] == []


def test_attacks_page_has_a_row_for_each_attack_and_no_other() -> None:
    page = ATTACKS_PAGE.read_text("utf-8")
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.count(" | ") == 4]
    heads = [["| attack", "how it is played"], ["| ---", "---"]]
    assert [row for row in rows if row not in heads] == [[f"| {one.name}", one.form] for one in ATTACKS]
    assert with_tables(page, {}) == page


def test_every_attack_has_a_server_of_its_own() -> None:
    assert len({one.server for one in ATTACKS}) == len(ATTACKS)


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("hostile")) as running:
        yield running
        assert running.stdio is not None and running.stdio.noise == []
        assert await running.stdio.close() == 0


async def test_a_bad_client_gets_an_error_and_nobody_else_notices(hubs: Site) -> None:
    assert EXPECTED.keys() == BAD_CLIENTS.keys()
    for case in ("malformed JSON", "one level more"):
        assert {door: await told(hubs, case, door) for door in DOORS} == EXPECTED[case]


async def test_five_thousand_calls_at_once_are_all_answered(hubs: Site) -> None:
    assert hubs.stdio is not None
    answers = await flooded(hubs.stdio, 5000)
    assert answers.keys() <= {"result", "1004"} and answers["result"] >= RUNNING + WAITING


@pytest.mark.parametrize(("detail", "is_shown"), [("the server was not told", False), ("not done in 25 s", True)])
def test_a_failure_of_a_client_is_excused_only_if_it_is_known_and_shows_without_the_hub(
    detail: str, is_shown: bool
) -> None:
    row = Row(CLIENTS["python-mcp-1"], "http", "modern")
    fault = next(fault for fault in KNOWN if fault.may_be_in(row, "cancel"))
    shown = {(row.client.name, fault)} if is_shown else set()
    failed = Outcome("cancel", False, detail)
    assert failures({row: [failed]}, shown) == [(row, failed)]


@pytest.mark.parametrize(
    ("values", "shares", "fault"),
    [
        ([*range(1, PROGRESS + 1)], False, ""),
        ([0, 1e-6, *range(1, PROGRESS + 1)], True, ""),
        ([0, 1e-6, *range(1, PROGRESS + 1)], False, "out of order"),
        ([2, 1, *range(3, PROGRESS + 1)], True, "out of order"),
        ([1, 1, *range(2, PROGRESS + 1)], True, "out of order"),
    ],
)
async def test_messages_of_the_hub_are_progress_only_for_a_client_that_shares_its_servers(
    values: list[float], shares: bool, fault: str
) -> None:
    async def call(tool: str, arguments: dict[str, Any], on_progress: OnProgress) -> None:
        for value in values:
            on_progress(value)

    session: Any = SimpleNamespace(call=call)
    with pytest.raises(Failed, match=fault) if fault else nullcontext():
        await progress(session, {"prefix": "h_", "shares": shares})


def _deep(*failing: tuple[str, str], client: str = "fastmcp") -> Measured:
    """A run in which all checks of this client passed, but for these, by front and check."""
    results = {
        (client, front): [
            Outcome(check, (front, check) not in failing, "lost") for check in (*CHECKS, "ends") if check != "ping"
        ]
        for front in (*DIRECT.values(), *MODES.values())
    }
    return Measured(dict(results))


@pytest.mark.parametrize(
    ("failing", "differences", "verdict"),
    [
        ([], [], ""),
        ([("http", "updates")], [], "fastmcp, http, updates: lost"),
        ([("attached", "ends")], [], "fastmcp, attached, ends: lost"),
        ([("http", "updates")], [Difference("updates", ("fast*",), ("http",), "lost")], ""),
        ([("http", "updates")], [Difference("updates", ("fast*",), ("own",), "lost")], "fastmcp, http, updates: lost"),
        ([("http", "updates")], [Difference("updates", ("*",), ("http",), "wrong")], "fastmcp, http, updates: lost"),
        ([("http", "updates")], [Difference("log", ("*",), ("http",), "lost")], "fastmcp, http, updates: lost"),
        ([("direct", "log"), ("stdio", "log")], [], "fastmcp, direct, log: lost"),
    ],
)
def test_a_deep_check_that_is_worse_through_the_hub_is_a_fault_unless_the_page_names_it(
    failing: list[tuple[str, str]], differences: list[Difference], verdict: str
) -> None:
    measured = _deep(*failing)
    assert complaints(measured, differences) == ([verdict] if verdict else [])
    assert ("FAIL" in "".join(table(measured, differences))) == ("direct" not in verdict and bool(verdict))


def test_a_deep_check_that_fails_by_chance_without_the_hub_too_is_not_a_fault() -> None:
    measured = _deep(("stdio", "progress"))
    measured.chance.add(("fastmcp", "direct", "progress"))
    assert complaints(measured, []) == []
    measured.missing["fastmcp"] = "no network"
    assert complaints(measured, []) == ["not installed: fastmcp: no network"]


def test_a_deep_check_that_a_library_cannot_do_without_the_hub_counts_through_it() -> None:
    measured = _deep(("http", "large"))
    direct = measured.results["fastmcp", "direct-http"]
    measured.results["fastmcp", "direct-http"] = [outcome for outcome in direct if outcome.step != "large"]
    assert complaints(measured, []) == ["fastmcp, http, large: lost"]


def test_differences_that_the_page_names_are_of_checks_clients_and_modes_that_exist() -> None:
    page = PAGE.read_text("utf-8")
    rows = documented(page)
    assert rows and page.count("<!-- deep -->") == 1
    for row in rows:
        assert row.check in CHECKS and set(row.modes) <= MODES.keys() and row.says
        assert all(any(fnmatch(client.name, pattern) for client in DEEP) for pattern in row.clients)
    assert all(client.lacks <= set(CHECKS) for client in DEEP)
    assert len({id(client.library) for client in DEEP}) == 9


def test_each_line_of_both_sides_is_recorded_with_placeholders_for_what_changes(tmp_path: Path) -> None:
    lines = [f'{{"id": "{uuid4()}", "version":"1.{number}", "at": "{tmp_path}/x"}}' for number in range(2)]
    command = [sys.executable, "-m", "rigs.clients.tee", str(tmp_path / "sent"), "cat"]
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.splitlines() == lines
    sent = steady(recorded(tmp_path / "sent"), tmp_path)
    assert {one.line for one in sent} == {'{"id": "UUID", "version":"VERSION", "at": "HOME/x"}'}
    assert sorted(one.side for one in sent) == ["client", "client", "hub", "hub"]


def test_a_client_that_sends_something_else_than_before_is_noticed_and_another_order_is_not() -> None:
    known = read(FOLDER / "codex-status.jsonl")
    assert difference("codex-status", replace(known, sent=sorted(known.sent, key=lambda one: one.line))) == ""
    assert "it sends ['initialize'" in difference("codex-status", replace(known, sent=known.sent[:-4]))
    other = [replace(one, line=one.line.replace("2025-06-18", "2025-11-25")) for one in known.sent]
    assert difference("codex-status", replace(known, sent=other)) == "the hub answers it in another way"


async def test_the_hub_passes_the_official_suite(tmp_path: Path) -> None:
    try:
        suite = suite_command()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    version = "2026-07-28"
    async with arranged("stdio-both", tmp_path) as url:
        run = await run_server_scenarios(suite, url, version)
    assert not run.complaints, "\n".join(run.complaints)
    assert len(run.verdicts) == SERVER_SCENARIOS[version]
