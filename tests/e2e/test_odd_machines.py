"""Odd machines: each command says one line and works, or says why not. There is never a traceback."""

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.upstreams.launch import servers_yaml

pytestmark = [
    pytest.mark.processes,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root, to become another user"),
    pytest.mark.skipif(not os.path.exists("/usr/bin/python3"), reason="needs an interpreter that all users may run"),
]

STRANGER = 50_000 + os.getpid() % 10_000
"""A user without an account, another one in each process that runs tests: they share /tmp."""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
LINES = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "s_echo", "arguments": {"text": "東京"}}},
]
COMMANDS = [("call", "s_echo", "text=ü"), ("status",), ("search", "prüft"), ("import", "--all", "--dry-run")]


HUB = {"expose": "full"}


class Machine:
    """A machine: the variables, the user and the limits of its processes."""

    def __init__(self, root: Path, env: Mapping[str, str], user: int, files: tuple[int, int] | None, cwd: str) -> None:
        self.root = root
        self.env = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", **env}
        self._user, self._files, self._cwd = user, files, cwd
        self.config = root / "servers.yaml"

    def configure(self) -> None:
        """Writes a configuration with one server, which every user may read."""
        program = self.root / "server.py"
        program.write_text(SERVER)
        self.config.write_text(servers_yaml({"s": ["/usr/bin/python3", str(program)]}, hub=HUB))
        for path in (program, self.config):
            path.chmod(0o644)

    def start(self, *args: str) -> "subprocess.Popen[bytes]":
        user = ["setpriv", f"--reuid={self._user}", "--regid=0", "--clear-groups"] if self._user else []
        line = [*user, sys.executable, "-m", "mcp_hub", *args, "--config", str(self.config)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            line, env=self.env, cwd="/", stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=self._become
        )

    def _become(self) -> None:
        if self._cwd == "deleted":
            folder = tempfile.mkdtemp(dir=self.root)
            os.chdir(folder)
            os.rmdir(folder)
        if self._files:
            resource.setrlimit(resource.RLIMIT_NOFILE, self._files)

    def run(self, *args: str) -> tuple[int, str]:
        """The exit code of a command, and all that it prints."""
        process = self.start(*args)
        output, errors = process.communicate(timeout=240)
        return process.returncode, (output + errors).decode("utf-8", "replace")

    def serve(self, attach: str) -> tuple[str, str]:
        """The text that the tool answers over stdio, and what the program says on stderr."""
        process = self.start("serve", "--attach", attach)
        answer = None
        for line, id_ in zip(LINES, (1, None, 2, 3), strict=True):
            answer = _exchanged(process, line, id_) or answer
        _, errors = process.communicate(timeout=240)
        return str(answer), errors.decode()


def _exchanged(process: "subprocess.Popen[bytes]", line: object, id_: int | None) -> object:
    """The answer of the program to a line; None if it ends, for a notification, or after half a minute."""
    assert process.stdin and process.stdout
    try:
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    answers, until = b"", time.monotonic() + 30
    while id_ is not None and time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.5)[0]:
            portion = os.read(process.stdout.fileno(), 1 << 16)
            answers += portion
            found = [json.loads(row) for row in answers.splitlines() if row.endswith(b"}")]
            if not portion or any(answer.get("id") == id_ for answer in found):
                return next((answer for answer in found if answer.get("id") == id_), found)
    return None


MACHINES: dict[str, dict[str, Any]] = {
    "HOME of another user": {"user": STRANGER, "HOME": "/root"},
    "all of it": {"user": STRANGER, "HOME": None, "cwd": "deleted", "files": (96, 96)},
    "C locale": {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "odd variables": {
        **{"LC_ALL": "xx_YY.zz", "TERM": "zz", "TZ": "No/Where", "COLUMNS": "0", "TMPDIR": "/does/not/exist"},
        **{"XDG_STATE_HOME": "here", "XDG_CONFIG_HOME": "here", "XDG_RUNTIME_DIR": "here", "PATH": ""},
        "files": (96, 4096),
    },
    "HOME below a file": {"user": STRANGER, "HOME": "/etc/passwd/home"},
    "Latin-1 terminal": {"PYTHONIOENCODING": "latin-1"},
    "deleted working directory": {"cwd": "deleted"},
    "HOME unset, no account": {"user": STRANGER, "HOME": None},
    "HOME empty, no account": {"user": STRANGER, "HOME": ""},
    "HOME relative, no account": {"user": STRANGER, "HOME": "here"},
    "HOME is /": {"user": STRANGER, "HOME": "/"},
    "96 files": {"files": (96, 4096)},
    "96 files at most": {"files": (96, 96)},
    "ASCII terminal": {"PYTHONIOENCODING": "ascii"},
    "unknown locale, terminal and zone": {"LC_ALL": "xx_YY.zz", "TERM": "zz", "TZ": "No/Where", "COLUMNS": "0"},
    "no TMPDIR": {"TMPDIR": "/does/not/exist"},
    "relative XDG folders": {"XDG_STATE_HOME": "here", "XDG_CONFIG_HOME": "here", "XDG_RUNTIME_DIR": "here"},
    "empty PATH": {"PATH": ""},
}
"""The first `SHORT` of them are those of `make test`; "all of it" and "odd variables" join what others have alone."""
SHORT = 4
ATTACHED = [(attach, machine) for attach in ("always", "never") for machine in MACHINES]


WITH_COMMANDS = [
    *("all of it", "C locale", "deleted working directory", "HOME unset, no account", "HOME of another user"),
    *("HOME below a file", "Latin-1 terminal", "unknown locale, terminal and zone"),
]


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    about = dict(MACHINES[request.param])
    user, files, cwd = about.pop("user", 0), about.pop("files", None), about.pop("cwd", "")
    with tempfile.TemporaryDirectory(prefix="odd-", dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o777)
        env = {name: value for name, value in {"HOME": folder, **about}.items() if value is not None}
        machine = Machine(root, env, user, files, cwd)
        machine.configure()
        yield machine
        output = machine.run("stop")
        left = _hubs_of(machine)
        for pid in left:
            os.kill(pid, signal.SIGTERM)
        assert left == [], f"stop did not end the background hub: {output}"
    if user:
        shutil.rmtree(f"/tmp/mcp-hub-{STRANGER}", ignore_errors=True)


def _hubs_of(machine: Machine) -> list[int]:
    """The background hubs of its configuration, which have its path among their arguments."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if b"attached-hub" in words and os.fsencode(machine.config) in words:
            pids.append(int(path.parent.name))
    return pids


DESCRIPTION = "prüft 日本語 🚀"
SERVER = """
import json, sys
tool = {"name": "echo", "description": "prüft 日本語 🚀", "inputSchema": {"type": "object"}}
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, params = message["method"], message.get("params", {})
    if "id" in message:
        text = {"content": [{"type": "text", "text": params.get("arguments", {}).get("text", "")}]}
        result = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "s", "version": "1"}},
            "tools/list": {"tools": [tool]},
            "tools/call": text,
        }.get(method, {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.first(SHORT)
@pytest.mark.parametrize(("attach", "machine"), ATTACHED, indirect=["machine"])
def test_serve_works_on_an_odd_machine(machine: Machine, attach: str) -> None:
    answer, errors = machine.serve(attach)
    assert "東京" in answer and "Traceback" not in errors, (answer, errors)
    assert len([line for line in errors.splitlines() if line.startswith("mcp-hub:")]) <= 2, errors


@pytest.mark.first(1)
@pytest.mark.parametrize("machine", WITH_COMMANDS, indirect=True)
def test_commands_work_on_an_odd_machine(machine: Machine) -> None:
    for args in COMMANDS:
        code, output = machine.run(*args)
        assert code in (0, 2, 3) and "Traceback" not in output and "Error" not in output, (args, output)
        assert code == 0 or args[0] in ("status", "import"), (args, output)


@pytest.mark.first(1)
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii"])
def test_json_stays_whole_on_a_terminal_that_lacks_its_characters(tmp_path: Path, encoding: str) -> None:
    machine = Machine(tmp_path, {"HOME": str(tmp_path), "PYTHONIOENCODING": encoding}, 0, None, "")
    machine.configure()
    process = machine.start("tools", "--json")
    output, errors = process.communicate(timeout=240)
    text = json.dumps(json.loads(output), ensure_ascii=False)
    assert process.returncode == 0 and DESCRIPTION in text, errors
