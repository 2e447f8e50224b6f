"""`mcp-hub status`: what is said of the hubs of a configuration."""

import json
import os
import stat
from pathlib import Path
from typing import Final

import anyio
import pytest
from click.testing import CliRunner, Result

from mcp_hub import __version__
from mcp_hub.cli import _GROUPS, main
from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.running import HubRecord, recorded, running_hub
from mcp_hub.cli.commands.running.status import _HubReport, report_data, report_lines
from mcp_hub.config.trust import OVERRIDE
from mcp_hub.errors import ConfigError
from mcp_hub.library.hub import Hub
from mcp_hub.protocol.rest.overview import ClientSummary
from mcp_hub.protocol.rest.servers import LastReload, SandboxInfo, ServerInfo, ServerList
from mcp_hub.sessions.clients import HubUse, PresentClient
from mcp_hub.types import Era, FileStamp
from tests.unit.cli.command import hub


@pytest.fixture
def place(person: Path) -> str:
    (person / "servers.yaml").write_text("servers: {broken: ")
    return str(person / "servers.yaml")


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def test_without_a_hub_it_says_so_and_exits_with_3(place: str) -> None:
    shown = run("status")
    assert shown.exit_code == 3 and f"No hub runs for {place}. Start one with" in shown.output
    none = run("status", "--json")
    assert none.exit_code == 3 and json.loads(none.output)["running"] is False


def test_a_hub_over_stdio_is_shown_and_asked_by_no_other_command(place: str) -> None:
    with recorded(place, "", os.environ, "claude-code", alone="this is a container"):
        shown = run("status")
        assert "\n  alone:   this is a container\n" in shown.output
        assert "clients: each has a hub of its own, because $MCP_HUB_ATTACH is never\n" in shown.output
        (hub,) = json.loads(run("status", "--json").output)["hubs"]
        assert running_hub(place, os.environ) is None
    assert shown.exit_code == 0 and "running over stdio for claude-code\n" in shown.output
    about = hub["transport"], hub["url"], hub["pid"], hub["version"]
    assert about == ("stdio", None, os.getpid(), __version__) and 0 <= hub["uptime"] < 60
    assert run("status").exit_code == 3


def test_a_hub_is_found_by_paths_that_are_not_utf_8() -> None:
    config, folder = "/d\udcff/servers.yaml", "/s\udcff/attach/0123"
    with recorded(config, "", os.environ, folder=folder):
        hub = running_hub(config, os.environ)
        assert hub is not None and (hub.config, hub.folder) == (config, folder)


def test_a_background_hub_and_clients_that_do_not_join_it_are_one_truth() -> None:
    hub = HubRecord("", 1, folder="/run/mcp-hub/0123", config="/x.yaml")
    lines = [text for text, _ in report_lines(_HubReport("/x.yaml", [hub], alone="this is a container"), 0.0)]
    said = (
        "clients of this shell do not join the background hub: each has a hub of its own, because this is a container"
        "; hub: {attach: always} has them share one"
    )
    assert said in lines and not any(line.startswith("clients:") for line in lines)


@pytest.mark.parametrize(
    ("alone", "offer", "setting"),
    [
        ("", "The next client starts one, and so does mcp-hub open.", ""),
        ("this is a container", "Start one with mcp-hub open, or ", "; hub: {attach: always} has them share one"),
        ("hub.attach is never", "Start one with mcp-hub serve --http, or ", ""),
    ],
)
def test_without_a_hub_it_says_what_starts_one(alone: str, offer: str, setting: str) -> None:
    lines = [text for text, _ in report_lines(_HubReport("/x.yaml", [], alone=alone), 0.0)]
    assert lines[0].startswith(f"No hub runs for /x.yaml. {offer}")
    assert lines[1:] == ([f"clients: each has a hub of its own, because {alone}{setting}"] if alone else [])


def test_doctor_in_a_container_names_the_setting_that_shares_a_hub(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(place).write_text("servers: {}")
    for name in ("MCP_HUB_ATTACH", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("container", "podman")
    for command, who in (("doctor", "Each client of this shell"), ("status", "clients: each")):
        said = run(command).output
        why = "this is a container; hub: {attach: always} has them share one"
        assert f"{who} has a hub of its own, because {why}\n" in said, said


MISTAKE: Final = "/s.yaml:3: a.b: no key. Did you mean c? [x]"
REFUSED: Final = LastReload("file", "2026-12-01T00:00:00Z", False, [MISTAKE, "y"])
BY_REQUEST: Final = LastReload("request", "2026-12-01T00:00:00Z", False, [MISTAKE])
KEEPS: Final = "the running hub keeps its settings from before: /s.yaml:3: a.b: no key. Did you mean c? Correct"
UNREAD: Final = "the running hub has not read this version of the file"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "is_read", "reload", "said"),
    [
        ("servers: {}", True, None, ""),
        ("servers: {}", True, LastReload("file", "2026-12-01T00:00:00Z", True, []), ""),
        ("servers: {}", True, REFUSED, f"{KEEPS} what mcp-hub check shows, and the hub reads the file by itself."),
        ("servers: {}", True, BY_REQUEST, f"{KEEPS} it, then run mcp-hub reload."),
        ("servers: {}", False, REFUSED, f"{UNREAD}. Run mcp-hub reload."),
        ("servers:\n  a: {comand: x}", False, None, f"{UNREAD}: FILE:2:"),
    ],
)
async def test_hub_that_goes_by_another_version_of_its_file_is_outdated(
    place: str, monkeypatch: pytest.MonkeyPatch, text: str, is_read: bool, reload: LastReload | None, said: str
) -> None:
    monkeypatch.setattr(waiting, "_READING", 0.0)
    await anyio.Path(place).write_text(text)
    listed = ServerList([], [], FileStamp.of(os.stat(place)).text if is_read else "1-2-3-4-5", reload)

    async def servers() -> ServerList:
        return listed

    _, findings = await waiting.file_read(servers, place)
    assert [finding.code for finding in findings] == (["hub_outdated"] if said else [])
    assert not said or findings[0].message.startswith(said.replace("FILE", place))
    _, elsewhere = await waiting.file_read(servers, "")
    assert bool(elsewhere) == (reload is not None and not reload.applied), "a hub at a URL has another file"


def test_others_than_operators_see_no_path_of_a_refused_file() -> None:
    shown = ServerList(
        [], reload=LastReload("file", "", False, ["/home/ann/servers.yaml:3: no key [x]"])
    ).without_output()
    assert shown.reload is not None and "/home" not in shown.reload.findings[0]


def test_report_counts_servers_and_names_those_given_up() -> None:
    servers = [ServerInfo(server=name, state="ready", restarts=0) for name in ("a", "b")]
    servers.append(ServerInfo(server="c", state="failed", restarts=5, code="crashed"))
    servers.append(ServerInfo("d", "ready", 0, sandbox=SandboxInfo("on", "hosts", 2)))
    servers += [ServerInfo(name, "ready", 0, given_up=count) for name, count in (("e", 1), ("f", 3))]
    report = _HubReport("/x.yaml", [HubRecord("http://h/mcp", 7, 1000.0, "1.2.3")], servers)
    assert [text for text, _ in report_lines(report, 8200.0)] == [
        "running at http://h/mcp",
        "  process: 7, for 2 h, version 1.2.3",
        "config:  /x.yaml",
        "servers: 5 ready, 1 failed",
        "  c: failed [crashed]. Run mcp-hub doctor c",
        "  d: its sandbox refused 2 attempts. Run mcp-hub sandbox d",
        "  e: 1 message about its events reached no webhook and was given up",
        "  f: 3 messages about its events reached no webhook and were given up",
    ]
    data = report_data(report, 8200.0)
    assert data["hubs"][0]["uptime"] == 7200 and data["servers"][2]["code"] == "crashed"
    assert [server.get("refused") for server in data["servers"]] == [None, None, None, 2, None, None]
    assert [server.get("given_up") for server in data["servers"][3:]] == [None, 1, 3]
    report = _HubReport("/x.yaml", [HubRecord("http://h/mcp", 7)], problem="wrong token [unauthorized]")
    assert ("servers: unknown: wrong token [unauthorized]", "yellow") in report_lines(report, 0.0)


CURSOR = PresentClient(41, "0.0.9", 940.0, "cursor", "Cur\x1bsor", "1.2", "handshake", 12)


@pytest.mark.parametrize(
    ("version", "use", "lines"),
    [
        (__version__, None, ["  clients: unknown: this hub does not say"]),
        (
            __version__,
            HubUse([], 0, 0, 0, 600.0, 540.0),
            ["  clients: none", "  ends:    in 9 min, unless a client comes"],
        ),
        (
            __version__,
            HubUse([CURSOR, PresentClient(7, "0.1.0", 999.0)], 9, 1, 0, 600.0),
            [
                "  clients: Cur\\x1bsor 1.2 (cursor), handshake, process 41, for 1 min, 12 calls",
                "           a client that has not said its name, process 7, for 1 s, 0 calls",
                "           7 more",
                "  ends:    10 min after the last client and call; 9 clients and 1 running call now",
            ],
        ),
        (
            "0.0.9",
            HubUse([CURSOR], 1, 0, 0, 600.0),
            [
                "  clients: Cur\\x1bsor 1.2 (cursor), handshake, process 41, for 1 min, 12 calls",
                "  older:   kept by Cur\\x1bsor 1.2 (cursor), handshake, process 41. Restart it, or run mcp-hub stop; "
                f"until then clients of version {__version__} share another hub",
                "  ends:    10 min after the last client and call; 1 client now",
            ],
        ),
    ],
)
def test_a_background_hub_names_its_clients_and_its_end(version: str, use: HubUse | None, lines: list[str]) -> None:
    hub = HubRecord("", 1, 900.0, version, folder="/run/mcp-hub/0123", config="/x.yaml")
    report = _HubReport("/x.yaml", [hub], uses={hub.folder: use})
    shown = [text for text, _ in report_lines(report, 1000.0)]
    assert shown[2 : 2 + len(lines)] == lines and shown[2 + len(lines)].startswith("config:")
    (data,) = report_data(report, 1000.0)["hubs"]
    assert (data["clients"], data["ends"]) == (None, None) if use is None else len(data["clients"]) == len(use.clients)


@pytest.mark.parametrize(
    ("names", "version", "why"),
    [
        (["TOKEN"], __version__, "other values of TOKEN"),
        ([], "0.0.9", f"its version is 0.0.9, and that one's {__version__}"),
        ([], __version__, "one was started while a hub of an older version was in use"),
    ],
)
def test_two_hubs_of_one_configuration_say_why_they_are_two(names: list[str], version: str, why: str) -> None:
    hubs = [HubRecord("", 7, folder="/run/a", config="/x.yaml", version=__version__),
            HubRecord("", 8, folder="/run/b", config="/x.yaml", version=version)]  # fmt: skip
    shown = [text for text, _ in report_lines(_HubReport("/x.yaml", hubs, apart={"/run/b": names}), 0.0)]
    assert [line for line in shown if "apart" in line] == [f"  apart:   from process 7: {why}"]


def test_the_clients_of_a_hub_over_http_are_named_but_for_those_that_have_gone() -> None:
    hubs = [HubRecord("http://h/mcp", 7, 900.0, "1.2.3"), HubRecord("", 8, 900.0, "1.2.3", client="zed")]
    clients = [
        ClientSummary("Cur\x1bsor", "1.2", Era.HANDSHAKE, "local", 940.0, 990.0, 12, connected=True),
        ClientSummary("Gone", "1", Era.HANDSHAKE, "local", 940.0, 950.0, 1, connected=False),
        ClientSummary("", "", Era.MODERN, "local", 999.0, 999.0, 1),
    ]
    report = _HubReport("/x.yaml", hubs, clients=clients)
    assert [text for text, _ in report_lines(report, 1000.0)][2:5] == [
        "  clients: Cur\\x1bsor 1.2, handshake, for 1 min, 12 calls",
        "           a client that has not said its name, modern, by request, for 1 s, 1 call",
        "running over stdio for zed",
    ]
    data = report_data(report, 1000.0)["hubs"]
    assert [own["calls"] for own in data[0]["clients"]] == [12, 1, 1] and data[1]["clients"] is None


@pytest.fixture
def state(person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of a configuration without servers, with a folder of logins, and a folder for the store."""
    folder = person / "state"
    monkeypatch.delenv(OVERRIDE, raising=False)
    (person / "servers.yaml").write_text(f"servers: {{}}\nhub: {{store: {{path: {person / 'streams'}}}}}\n")
    for place in (folder, folder / "oauth", person / "streams"):
        place.mkdir(mode=0o700)
    return folder


def open_to(folder: Path, more: int) -> Path:
    folder.chmod(stat.S_IMODE(folder.stat().st_mode) | more)
    return folder


@pytest.mark.processes
def test_folders_that_the_hub_makes_are_private(state: Path) -> None:
    streams = state.parent / "streams"
    streams.rmdir()
    assert hub(state.parent, "doctor").returncode == hub(state.parent, "doctor").returncode == 0
    assert {stat.S_IMODE(path.stat().st_mode) for path in (streams, streams / "instances")} == {0o700}


def test_folder_is_used_where_others_may_only_read_it_or_are_trusted(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to(state, 0o055)
    assert run("check", "--no-start").exit_code == 0
    open_to(state, 0o077)
    monkeypatch.setenv(OVERRIDE, "1")
    assert run("check", "--no-start").exit_code == 0


_COMMANDS: Final = [
    *(("check", "--no-start"), ("install", "--undo"), ("open", "--print"), ("add", "x", "--command", "x")),
    *((name,) for group in _GROUPS.values() for name in group if name not in ("schema", "completion")),
]
_PLACES: Final = ["state/oauth", "state/hubs", "state/clients/acts", "streams"]


@pytest.mark.parametrize(
    ("place", "command"),
    [*(("state", command) for command in _COMMANDS), *((place, _COMMANDS[0]) for place in _PLACES)],
)
def test_a_folder_that_others_may_write_is_refused_with_the_fix(
    state: Path, place: str, command: tuple[str, ...]
) -> None:
    (state.parent / place).mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = open_to(state.parent / place, 0o077)
    refused = run(*command)
    said = " ".join(refused.output.split())
    assert refused.exit_code == 2 and "[state_untrusted]" in said
    assert f"{folder}: can be written by everybody on this machine" in said and "mcp-hub doctor --fix" in said


@pytest.mark.parametrize("command", [("schema",), ("install", "--help"), ("--help",), ("--version",)])
def test_a_command_that_uses_no_state_runs_beside_an_open_folder(state: Path, command: tuple[str, ...]) -> None:
    open_to(state, 0o077)
    assert run(*command).exit_code == 0


@pytest.mark.processes
def test_doctor_fixes_what_is_fixed_by_the_right_mode(state: Path) -> None:
    folders = [open_to(folder, 0o077) for folder in (state, state / "oauth", state.parent / "streams")]
    fixed = hub(state.parent, "doctor", "--fix")
    assert fixed.returncode == 0 and all(f"+ {folder}: mode 0755" in fixed.stderr for folder in folders)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o755] * 3
    again = hub(state.parent, "doctor", "--fix")
    assert again.returncode == 0 and "fixed" not in again.stderr


@pytest.mark.anyio
async def test_a_hub_in_a_program_refuses_it_too(state: Path) -> None:
    open_to(state, 0o077)
    with pytest.raises(ConfigError) as caught:
        async with Hub.from_config():
            pass
    assert caught.value.code == "state_untrusted" and str(state) in str(caught.value)


@pytest.mark.processes
def test_store_that_cannot_be_used_is_named_in_a_sentence(state: Path) -> None:
    (state.parent / "streams/streams.db").mkdir()
    (state.parent / "servers.yaml").write_text(
        (state.parent / "servers.yaml").read_text().replace("{}", '{t: {local: "mcp_hub.examples.jobs:registry"}}', 1)
    )
    done = hub(state.parent, "list")
    assert done.returncode == 0 and done.stderr.startswith("Calls of this command are not stored")
    assert f"{state.parent}/streams/streams.db" in done.stderr and "Check the permissions" in done.stderr
    assert "store_failed" not in done.stderr and "durable=" not in done.stderr and done.stderr.count("\n") == 1
