"""`mcp-hub status`: what is said of the hubs of a configuration."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mcp_hub import __version__
from mcp_hub.cli import main
from mcp_hub.cli.access.running import HubRecord, recorded, running_hub
from mcp_hub.cli.commands.running.status import HubReport, report_data, report_lines
from mcp_hub.protocol.rest.overview import ClientSummary
from mcp_hub.protocol.rest.servers import SandboxInfo, ServerInfo
from mcp_hub.sessions.clients import HubUse, PresentClient
from mcp_hub.types import Era


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MCP_HUB_ATTACH", "never")
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    (tmp_path / "servers.yaml").write_text("servers: {broken: ")
    return str(tmp_path / "servers.yaml")


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


def test_a_background_hub_and_clients_that_do_not_join_it_are_one_truth() -> None:
    hub = HubRecord("", 1, folder="/run/mcp-hub/0123", config="/x.yaml")
    lines = [text for text, _ in report_lines(HubReport("/x.yaml", [hub], alone="this is a container"), 0.0)]
    said = (
        "clients of this shell do not join the background hub: each has a hub of its own, because this is a container"
    )
    assert said in lines and not any(line.startswith("clients:") for line in lines)


def test_servers_are_counted_by_state_and_those_given_up_are_named() -> None:
    servers = [ServerInfo(server=name, state="ready", restarts=0) for name in ("a", "b")]
    servers.append(ServerInfo(server="c", state="failed", restarts=5, code="crashed"))
    servers.append(ServerInfo("d", "ready", 0, sandbox=SandboxInfo("on", "hosts", 2)))
    report = HubReport("/x.yaml", [HubRecord("http://h/mcp", 7, 1000.0, "1.2.3")], servers)
    assert [text for text, _ in report_lines(report, 8200.0)] == [
        "running at http://h/mcp",
        "  process: 7, for 2 h, version 1.2.3",
        "config:  /x.yaml",
        "servers: 3 ready, 1 failed",
        "  c: failed [crashed]. Run mcp-hub doctor c",
        "  d: its sandbox refused 2 attempts. Run mcp-hub sandbox d",
    ]
    data = report_data(report, 8200.0)
    assert data["hubs"][0]["uptime"] == 7200 and data["servers"][2]["code"] == "crashed"
    assert [server.get("refused") for server in data["servers"]] == [None, None, None, 2]


def test_a_hub_that_does_not_answer_runs_all_the_same() -> None:
    report = HubReport("/x.yaml", [HubRecord("http://h/mcp", 7)], problem="wrong token [unauthorized]")
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
    report = HubReport("/x.yaml", [hub], uses={hub.folder: use})
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
    shown = [text for text, _ in report_lines(HubReport("/x.yaml", hubs, apart={"/run/b": names}), 0.0)]
    assert [line for line in shown if "apart" in line] == [f"  apart:   from process 7: {why}"]


def test_the_clients_of_a_hub_over_http_are_named_but_for_those_that_have_gone() -> None:
    hubs = [HubRecord("http://h/mcp", 7, 900.0, "1.2.3"), HubRecord("", 8, 900.0, "1.2.3", client="zed")]
    clients = [
        ClientSummary("Cur\x1bsor", "1.2", Era.HANDSHAKE, "local", 940.0, 990.0, 12, connected=True),
        ClientSummary("Gone", "1", Era.HANDSHAKE, "local", 940.0, 950.0, 1, connected=False),
        ClientSummary("", "", Era.MODERN, "local", 999.0, 999.0, 1),
    ]
    report = HubReport("/x.yaml", hubs, clients=clients)
    assert [text for text, _ in report_lines(report, 1000.0)][2:5] == [
        "  clients: Cur\\x1bsor 1.2, handshake, for 1 min, 12 calls",
        "           a client that has not said its name, modern, by request, for 1 s, 1 call",
        "running over stdio for zed",
    ]
    data = report_data(report, 1000.0)["hubs"]
    assert [own["calls"] for own in data[0]["clients"]] == [12, 1, 1] and data[1]["clients"] is None
