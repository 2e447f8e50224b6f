"""`list`, `tools`, `doctor` and `check` as they are really run, against good and bad servers."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.codes.tables import CODES
from tests.e2e.client import Silent, threaded
from tests.e2e.terminal import terminal
from tests.unit.cli.command import COMMAND, JOBS, SECONDS, command_env, hub
from tests.upstreams.launch import argv, events

UNFIT = [{"name": "fine", "inputSchema": {"type": "object"}}, {"name": "unfit", "inputSchema": {"type": "array"}}]


def command(*line: str, **more: Any) -> dict[str, Any]:
    return {"command": line[0], "args": list(line[1:]), **more}


def configure(where: Path, /, **servers: dict[str, Any]) -> None:
    (where / "servers.yaml").write_text(json.dumps({"servers": servers}))


def mixed(folder: Path) -> None:
    """One healthy server of each kind, one that is missing, one that crashes, one that is switched off."""
    configure(
        folder,
        good=command(*argv()),
        jobs=JOBS,
        missing=command("no-such-program-anywhere"),
        crashing=command(*argv(mode="crash-start")),
        off=command("no-such-program-either", enabled=False),
    )


def test_list_shows_states_counts_and_reasons(tmp_path: Path) -> None:
    mixed(tmp_path)
    done = hub(tmp_path, "list")
    assert done.returncode == 3
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert rows["good"][1:4] == ["ready", "2025-11-25", "(handshake)"]
    assert int(rows["good"][4]) > 10 and rows["good"][-1] == "hub"
    assert rows["jobs"][1:] == ["ready", "handshake", "3", "0", "0"]
    assert rows["off"][1] == "disabled"
    missing, crashing = (line for line in done.stdout.splitlines() if "[" in line and line.endswith("]"))
    assert missing.startswith("missing has failed: ") and "no-such-program-anywhere" in missing
    assert missing.endswith(" [command_not_found]")
    assert crashing.startswith("crashing has failed: ") and crashing.endswith(" [start_crashed]")
    assert f"{crashing}\n  | boom: cannot open database\n" in done.stdout
    assert done.stderr == ""


def test_list_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    configure(tmp_path, everything=command(*argv()), gone=command("no-such-program-anywhere"))
    with terminal(tmp_path, "list", columns=80) as person:
        assert person.end() == 3
    table, _, reasons = (
        re.sub(r"\x1b\[[\d;?]*\w", "", person.text).replace("\r", "\n").partition("\n\n\ngone has failed")
    )
    (row,) = [line for line in table.splitlines() if line.startswith("everything  ready")]
    assert "2025-11-25 (handshake)" in row and len(row.rstrip()) <= 80 and "[command_not_found]" in reasons


def test_list_prints_one_json_document(tmp_path: Path) -> None:
    mixed(tmp_path)
    done = hub(tmp_path, "list", "--json")
    assert done.returncode == 3
    servers = {server["server"]: server for server in json.loads(done.stdout)["servers"]}
    assert list(servers) == ["good", "jobs", "missing", "crashing", "off"]
    assert servers["good"]["state"] == "ready"
    assert servers["good"]["reason"] is None
    assert {name: server["code"] for name, server in servers.items()} == {
        "good": None,
        "jobs": None,
        "missing": "command_not_found",
        "crashing": "start_crashed",
        "off": "disabled",
    }
    assert servers["crashing"]["stderr"] == ["boom: cannot open database"]
    hubs_log = {"rule": "hub", "sent": 0, "kept": 0}
    assert [servers[name]["logs"] for name in ("good", "jobs", "off")] == [hubs_log, None, None]


def test_list_ends_with_0_when_all_enabled_servers_are_ready(tmp_path: Path) -> None:
    configure(tmp_path, off=command("no-such-program", enabled=False), jobs={**JOBS, "tools": {"deny": ["wait"]}})
    done = hub(tmp_path, "list")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].split() == ["jobs", "ready", "handshake", "2", "0", "0"], "those of clients"


def test_list_waits_no_longer_than_its_option_says(tmp_path: Path) -> None:
    configure(tmp_path, slow=command(*argv(mode="hang-start")))
    done = hub(tmp_path, "list", "--wait", "0.2")
    assert done.returncode == 3
    assert "slow has not started in time" in done.stdout


def test_list_names_quarantined_definitions(tmp_path: Path) -> None:
    hostile = {"name": "un\x1bfit", "inputSchema": {"type": "object"}}
    (tmp_path / "tools.json").write_text(json.dumps([*UNFIT, hostile]))
    configure(tmp_path, odd=command(*argv(tools_json=tmp_path / "tools.json")))
    done = hub(tmp_path, "list")
    assert done.returncode == 0
    assert "odd: tool unfit is left out: " in done.stdout
    assert "odd: tool un?fit is left out: name holds control characters" in done.stdout


def test_list_says_what_is_missing_from_a_servers_lists(tmp_path: Path) -> None:
    configure(tmp_path, looping=command(*argv("--page-loop")))
    done = hub(tmp_path, "list")
    assert done.returncode == 0
    assert "looping: tools: " in done.stdout
    servers = json.loads(hub(tmp_path, "list", "--json").stdout)["servers"]
    assert any(warning.startswith("tools: ") and "cursor" in warning for warning in servers[0]["warnings"])


def test_tools_are_those_that_clients_get(tmp_path: Path) -> None:
    configure(tmp_path, jobs=JOBS, good=command(*argv()))
    done = hub(tmp_path, "tools", "--json")
    assert done.returncode == 0
    names = [tool["name"] for tool in json.loads(done.stdout)]
    assert names[:3] == ["jobs_run_job", "jobs_count_words", "jobs_wait"]
    assert "good_echo" in names
    table = hub(tmp_path, "tools", "--server", "jobs").stdout
    assert "jobs_wait" in table
    assert "good_echo" not in table


def test_tools_are_one_on_a_line_and_full_shows_all_of_them(tmp_path: Path) -> None:
    long = {"name": "long", "description": f"One\x1b[2J. {'More. ' * 50}\nAnd more.", "inputSchema": {"type": "object"}}
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "An a"}}, "required": ["a"]}
    (tmp_path / "tools.json").write_text(json.dumps([long, {"name": "short", "inputSchema": schema}]))
    configure(tmp_path, own=command(*argv(tools_json=tmp_path / "tools.json")))
    lines = hub(tmp_path, "tools", "--server", "own").stdout.splitlines()
    assert [line.split() for line in lines if "own_" in line][-2:] == [["own_long", "own", "One"], ["own_short", "own"]]
    full = hub(tmp_path, "tools", "--server", "own", "--full").stdout
    assert "own_long (own)\n  One\\x1b[2J. More." in full and "\n  And more.\n" in full
    assert "own_short (own)\n    a:str: An a\n" in full
    with terminal(tmp_path, "tools") as person:
        assert person.end() == 0
        assert len([line for line in person.text.splitlines() if "own_" in line]) == len(lines) - 2


def test_tools_of_a_server_that_is_down_or_unknown(tmp_path: Path) -> None:
    mixed(tmp_path)
    down = hub(tmp_path, "tools", "--server", "crashing")
    assert down.returncode == 3
    assert "crashing has failed: " in down.stderr and "[start_crashed]" in down.stderr
    unknown = hub(tmp_path, "tools", "--server", "crash")
    assert unknown.returncode == 2
    assert '"crash"' in unknown.stderr and '"crashing"' in unknown.stderr


ANSWERS = """
import json, sys
answers = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        answer = answers.get(message["method"], {"error": {"code": -32601, "message": "Method not found"}})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}


def answering(**answers: dict[str, Any]) -> dict[str, Any]:
    """A server that knows these answers only."""
    return command(
        sys.executable, "-c", f"exec({ANSWERS!r})", json.dumps({key.replace("_", "/"): answers[key] for key in answers})
    )


DOCTORED = {
    "good": (command(*argv()), "ok"),
    "jobs": (JOBS, "ok"),
    "off": (command("no-such-program", enabled=False), "disabled"),
    "missing": (command("no-such-program"), "command_not_found"),
    "crashing": (command(*argv(mode="crash-start")), "start_crashed"),
    "hanging": (command(*argv(mode="hang-start"), start_timeout="1s"), "start_timeout"),
    "list-hangs": (command(*argv(mode="hang-list"), start_timeout="1s"), "start_timeout"),
    "cat": (command("cat"), "not_mcp"),
    "echo": (command("echo", "usage: see --help"), "not_mcp"),
    "banner": (command("sh", "-c", "echo listening; exec sleep 600", start_timeout="3s"), "not_mcp"),
    "too-new": (command(*argv(era="modern"), era="handshake"), "era_mismatch"),
    "too-old": (command(*argv(era="handshake"), era="modern"), "era_mismatch"),
    "refusing": (answering(initialize={"error": {"code": -1, "message": "no licence"}}), "handshake_failed"),
    "listless": (answering(initialize={"result": HELLO}), "list_failed"),
    "empty": (answering(initialize={"result": HELLO}, tools_list={"result": {"tools": []}}), "no_tools"),
    "lost": ({"local": "no_such_module:registry"}, "module_not_found"),
    "misnamed": ({"local": "json:loads"}, "registry_not_found"),
    "folder": (command("cat", cwd="/no/such/folder"), "cwd_not_found"),
    "nobody": ({"url": "http://127.0.0.1:1/mcp"}, "connection_refused"),
    "hidden": ({**JOBS, "tools": {"deny": ["*"]}}, "all_filtered"),
}


class _Broken(Silent):
    """Answers everything with HTTP 500."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_error(500)


def test_doctor_finds_what_is_wrong_with_each(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(UNFIT))
    odd = command(*argv(tools_json=tmp_path / "tools.json"))
    with threaded(_Broken) as url:
        broken = {"url": f"{url}/mcp", "type": "http", "era": "handshake"}
        configure(tmp_path, odd=odd, broken=broken, **{name: server for name, (server, _) in DOCTORED.items()})
        done = hub(tmp_path, "doctor", "--json")
    assert done.returncode == 3
    found = {server["server"]: server for server in json.loads(done.stdout)["servers"]}
    codes = {name: server["code"] for name, server in found.items()}
    known = {"odd": "definitions_quarantined", "broken": "server_error"}
    assert codes == {**known, **{name: code for name, (_, code) in DOCTORED.items()}}
    assert found["good"]["command"] == sys.executable
    assert found["good"]["version"] == "2025-11-25"
    assert 0 < found["good"]["seconds"] < SECONDS
    assert found["crashing"]["output"] == ["boom: cannot open database"]
    assert all(server["fix"] == ("" if server["ok"] else CODES[server["code"]].fix) for server in found.values())


def test_doctor_starts_only_the_servers_that_are_named_and_says_how_to_fix_them(tmp_path: Path) -> None:
    mixed(tmp_path)
    done = hub(tmp_path, "doctor", "jobs")
    assert done.returncode == 0
    assert done.stdout.startswith("jobs: ok, handshake, 0.0 s\n")
    assert done.stdout.endswith("1 server, all fine\n")
    assert hub(tmp_path, "doctor", "nobody").returncode == 2
    done = hub(tmp_path, "doctor", "crashing")
    assert done.returncode == 3
    head, program, problem, fix, output, _ = done.stdout.splitlines()
    assert head.startswith("crashing: start_crashed, ")
    assert program == f"  command: {sys.executable}"
    assert problem.startswith("  problem: ") and "code 3" in problem
    assert fix == f"  fix:     {CODES['start_crashed'].fix}"
    assert output == "  | boom: cannot open database"


def test_check_gives_file_line_and_path_of_every_error(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers:\n  a: {comand: x}\n  b:\n    command: y\n    timeout: soon\n")
    done = hub(tmp_path, "check")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"{path}:2: servers.a.comand: ") and first.endswith(" [unknown_key]")
    assert '"command"' in first
    assert second.startswith(f"{path}:5: servers.b.timeout: ") and second.endswith(" [invalid_value]")
    assert done.stdout == ""
    as_json = hub(tmp_path, "check", "--json")
    assert as_json.returncode == 2
    told = json.loads(as_json.stdout)
    assert told["ok"] is False
    assert told["errors"] == done.stderr.splitlines()
    found = [(own["level"], own["code"], own["line"], own["path"]) for own in told["findings"]]
    assert found[0] == ("error", "unknown_key", 2, "servers.a.comand") and len(found) == 2


def test_check_starts_nothing_and_warns_of_what_cannot_start(tmp_path: Path) -> None:
    path, journal = tmp_path / "servers.yaml", tmp_path / "journal"
    good = json.dumps(command(*argv(journal=journal)))
    path.write_text(
        f"servers:\n  good: {good}\n  a: {{command: no-such-program}}\n  b: {{local: 'no_such_module:r'}}\n"
        "  c: {command: cat, cwd: /no/such/folder}\n  jobs: {local: 'mcp_hub.examples.jobs:registry'}\n"
    )
    done = hub(tmp_path, "check")
    assert done.returncode == 0
    expected = [
        ("3: servers.a.command: ", "no-such-program", "command_not_found"),
        ("4: servers.b.local: ", "no_such_module", "module_not_found"),
        ("5: servers.c.cwd: ", "/no/such/folder", "cwd_not_found"),
    ]
    for line, (place, named, code) in zip(done.stderr.splitlines(), expected, strict=True):
        assert line.startswith(f"warning: {path}:{place}") and named in line and line.endswith(f" [{code}]")
    assert done.stdout.splitlines()[0] == (
        f"{path}: valid, but 2 servers cannot start (5 servers, 0 profiles, 0 tokens, 3 warnings). Run: mcp-hub doctor"
    )
    assert not journal.exists()


def test_check_knows_the_lines_of_other_clients_files_and_shows_no_argument(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("mcpServers:\n  a:\n    command: no-such-program\n    args: [--key, hunter22]\n")
    done = hub(tmp_path, "check")
    assert f"{path}:3: mcpServers.a.command: " in done.stderr and "[command_not_found]" in done.stderr
    assert "hunter22" not in done.stdout + done.stderr + hub(tmp_path, "check", "--json").stdout


def test_bad_configuration_stops_every_command_with_2(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text("servers: 5\n")
    for args in (["list"], ["tools"], ["doctor"], ["call", "x"], ["check"]):
        done = hub(tmp_path, *args)
        assert done.returncode == 2, args
        assert "servers.yaml:1: servers: " in done.stderr and done.stderr.endswith("[wrong_type]\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.first(1)
def test_interrupted_list_ends_with_130_and_leaves_no_child(tmp_path: Path, number: signal.Signals) -> None:
    journal = tmp_path / "journal"
    os.mkfifo(tmp_path / "started")
    started = os.open(tmp_path / "started", os.O_RDWR | os.O_NONBLOCK)
    # a server that says when it runs, and would not go of its own accord
    script = f"echo $$ > {tmp_path / 'started'}; trap '' TERM; while true; do sleep 600; done"
    configure(tmp_path, stuck=command("sh", "-c", script), good=command(*argv(journal=journal)))
    with subprocess.Popen([*COMMAND, "list"], env=command_env(tmp_path), cwd=tmp_path) as process:
        assert select.select([started], [], [], SECONDS)[0]
        pid = int(os.read(started, 100))
        process.send_signal(number)
        assert process.wait(SECONDS) == 130
    os.close(started)
    children = [pid, *(record["pid"] for record in events(journal, "start"))]
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def test_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    configure(tmp_path, jobs=JOBS)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "tools"], stdout=write, stderr=subprocess.PIPE, env=command_env(tmp_path), timeout=SECONDS
    )
    os.close(write)
    assert done.returncode == 1
    assert done.stderr == b""
