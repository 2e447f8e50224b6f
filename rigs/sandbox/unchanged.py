"""`python -m rigs.sandbox.unchanged`: a server without the key `sandbox` starts by the system calls of a plain start.

Compared by strace, up to the first read of a message: the calls of its process, before and after it executes the
command, with those of a bare `subprocess.Popen`; with `--before HUB`, the command of an older hub, also those of the
hub around the start, and arguments and environment. Numbers of processes and descriptors, addresses, times and random
bytes are left out. The control runs: `sandbox: off` makes the same calls, `sandbox: on` has to make others. Exit code 1
for a difference; without strace nothing is compared, and the reason is printed.
"""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mcp_hub.sandbox.confinement import Unsupported, support
from rigs.report import arguments, reported, say

_SERVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"error": {"code": -32601, "message": "unknown"}}
    if message["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    if message["method"] == "tools/list":
        answer = {"result": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
    if message["method"] == "tools/call":
        answer = {"result": {"content": [{"type": "text", "text": "answered"}]}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
_BARE = """
import json, signal, subprocess, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
    signal.siginterrupt(number, False)
argv, cwd, env = json.loads(sys.argv[1])
pipe = subprocess.PIPE
process = subprocess.Popen(
    argv, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe, close_fds=True, cwd=cwd, env=env, start_new_session=True
)
process.stdin.close()
process.wait()
"""
"""A start without a hub. As in one, signals have handlers, which the new process resets."""
_SECONDS = 120
_STEADY = (
    (re.compile(r"0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"\{st_dev=[^}]*\}"), "STATUS"),
    (re.compile(r'getrandom\("[^"]*"'), "getrandom(BYTES"),
    (re.compile(r"sysinfo\(\{[^}]*\}"), "sysinfo(FIGURES"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "INSTANCE"),
    (re.compile(r"rlim_cur=\d+"), "rlim_cur=NUMBER"),
    (re.compile(r"\s+"), " "),
)
"""Parts of a line that differ from run to run."""
_USE = re.compile(r"^(\w+\()(\d+)(?=[,)])")
_OPENING = re.compile(r"^(?:openat|pidfd_open)\(|^fcntl\(#?\d+, F_DUPFD")
_CONFINING = re.compile(r"landlock_|seccomp\(|prctl\(PR_SET_(?:NO_NEW_PRIVS|SECCOMP)")
_PIPE = re.compile(r"^pipe2\(\[(\d+), (\d+)\]")
_USERS = frozenset(("close(", "read(", "write(", "fcntl(", "ioctl(", "lseek(", "newfstatat(", "dup2(", "getdents64("))
"""Calls whose first argument is a descriptor."""


@dataclass(frozen=True)
class Start:
    """The start of a server: the calls of its process, and those of the hub around it.

    `confining` are the calls of Landlock and seccomp in the whole run, in whatever process.
    """

    process: Sequence[str]
    hub: Sequence[str]
    confining: Sequence[str] = ()

    @property
    def execution(self) -> tuple[list[str], dict[str, str]]:
        """The arguments and environment of the command. Raises `ValueError`."""
        line = next(line for line in reversed(self.process) if line.startswith("execve("))
        decoder = json.JSONDecoder()
        argv, end = decoder.raw_decode(line, line.index("["))
        env, _ = decoder.raw_decode(line, line.index("[", end))
        return argv, dict(item.split("=", 1) for item in env)

    @property
    def calls(self) -> list[str]:
        """The calls of the process without what it executes."""
        return ["execve(COMMAND)" if line.startswith("execve(") else line for line in self.process]


class Descriptors:
    """The descriptors of a process, numbered in the order in which they appear."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}
        self._count = 0

    def numbered(self, line: str) -> str:
        """The call with these numbers. A new program begins anew, since others are closed for it."""
        if line.startswith("execve("):
            self._numbers.clear()
            self._count = 0
        if line.startswith("close_range("):
            return "close_range(OTHERS)"
        if pipe := _PIPE.match(line):
            return f"pipe2([{self._opened(pipe[1])}, {self._opened(pipe[2])}]{line[pipe.end() :]}"
        use = _USE.match(line)
        if use and use[1] in _USERS:
            line = f"{use[1]}{self._number(use[2])}{line[use.end() :]}"
        head, equals, result = line.rpartition(" = ")
        is_opening = _OPENING.match(line) is not None and result.isdigit()
        return f"{head}{equals}{self._opened(result)}" if is_opening else line

    def _opened(self, number: str) -> str:
        self._numbers.pop(number, None)
        return self._number(number)

    def _number(self, number: str) -> str:
        if int(number) > 2 and number not in self._numbers:
            self._numbers[number] = f"#{self._count}"
            self._count += 1
        return self._numbers.get(number, number)


def steady(lines: Iterable[str], names: Mapping[str, str]) -> Iterator[str]:
    """Lines of strace without what differs from run to run; `names` are texts and what stands in their place."""
    descriptors = Descriptors()
    for line in lines:
        for text, name in names.items():
            line = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", name, line)
        for pattern, name in _STEADY:
            line = pattern.sub(name, line)
        yield descriptors.numbered(line.strip())


def read_start(traces: Mapping[int, Sequence[str]], command: Sequence[str], names: Mapping[str, str]) -> Start:
    """The start of this command in what strace wrote about each process or thread. Raises `LookupError`."""
    execution = f"execve({json.dumps(command[0])}, {json.dumps(list(command))}"
    pid = next(pid for pid, lines in traces.items() if any(line.startswith(execution) for line in lines))
    names = {**names, str(pid): "PROCESS"}
    lines = list(traces[pid])
    end = next((number for number, line in enumerate(lines) if line.startswith("read(0, ")), len(lines))
    for starter in traces.values():
        forks = [number for number, line in enumerate(starter) if re.match(rf"(vfork|fork|clone)\(.*= {pid}$", line)]
        if forks:
            process, hub = lines[:end], _around(starter, forks[0], pid)
            confining = [line for every in traces.values() for line in every if _CONFINING.match(line)]
            return Start(list(steady(process, names)), list(steady(hub, names)), confining)
    raise LookupError(f"nothing started process {pid}")


def _around(lines: Sequence[str], fork: int, pid: int) -> Sequence[str]:
    """The calls between the two messages of the hub to its watchdog: a start begins, and its process is known."""
    first = next((number for number in range(fork, -1, -1) if '"?\\n"' in lines[number]), fork)
    last = next((number for number in range(fork, len(lines)) if f'"+{pid}\\n"' in lines[number]), fork)
    return lines[first : last + 1]


class Traced:
    """Starts of one server, each traced by strace in a new home folder below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        script = root / "server.py"
        script.write_text(_SERVER)
        self.command = [os.path.realpath(sys.executable), "-I", "-S", str(script)]
        self.cwd = root / "work"
        self.cwd.mkdir()

    def by_hub(self, hub: Path, **keys: str) -> Start:
        """The start by `mcp-hub call`, with further keys of the server. Raises `LookupError`, `OSError`."""
        entry = {"command": self.command[0], "args": self.command[1:], "cwd": str(self.cwd), **keys}
        config = self._root / "servers.yaml"
        config.write_text(json.dumps({"hub": {"prefix": "never"}, "servers": {"s": entry}}))
        config.chmod(0o600)
        return self._traced([str(hub), "call", "--config", str(config), "t"], {str(hub.parent): "BIN"})

    def bare(self, like: Start) -> Start:
        """The start of the command of another one by a program that does nothing else."""
        argv, env = like.execution
        return self._traced([sys.executable, "-c", _BARE, json.dumps([argv, str(self.cwd), env])], {})

    def _traced(self, line: Sequence[str], names: Mapping[str, str]) -> Start:
        for name in ("home", "traces"):
            shutil.rmtree(self._root / name, ignore_errors=True)
            (self._root / name).mkdir()
        home = str(self._root / "home")
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8", "MCP_HUB_ATTACH": "never"}
        env["MCP_HUB_STATE_DIR"] = f"{home}/state"
        strace = ["strace", "-ff", "-v", "-qq", "-e", "signal=none", "-s", "4096", "-o", f"{self._root}/traces/trace"]
        done = subprocess.run(
            [*strace, *line], env=env, cwd=self.cwd, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        traces = {int(path.suffix[1:]): _lines(path) for path in (self._root / "traces").iterdir()}
        try:
            return read_start(traces, self.command, names)
        except StopIteration:
            raise LookupError(f"{line[0]} started no server: {done.stdout[-500:]}{done.stderr[-500:]}") from None


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", "replace").splitlines()


def differences(first: Sequence[str], second: Sequence[str], label: str) -> list[str]:
    """A fault for each call that one list has and the other lacks."""
    lines = difflib.unified_diff(first, second, n=0, lineterm="")
    return [f"{label}: {line[:200]}" for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]


def why_not() -> str:
    """The reason for which nothing can be traced here, or an empty text."""
    if sys.platform != "linux":
        return "strace needs Linux"
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


def compared(traced: Traced, before: Path | None) -> tuple[list[str], list[str]]:
    """What was compared, and the differences."""
    now = Path(sys.executable).with_name("mcp-hub")
    start = traced.by_hub(now)
    lines = [
        f"without the key: {len(start.process)} calls of the process, {len(start.hub)} of the hub around the start"
    ]
    others: dict[str, tuple[Sequence[str], Sequence[str]]] = {"a bare start": (traced.bare(start).calls, start.calls)}
    off = traced.by_hub(now, sandbox="off")
    others |= {"process, sandbox: off": (start.process, off.process), "hub, sandbox: off": (start.hub, off.hub)}
    if before is not None:
        older = traced.by_hub(before)
        others |= {"process, before": (older.process, start.process), "hub, before": (older.hub, start.hub)}
    faults = [f"without the key: {line[:200]}" for line in start.confining]
    for label, (first, second) in others.items():
        faults += (more := differences(first, second, label))
        lines.append(f"{label}: {len(more)} differences")
    return lines + _control(traced, start, now, faults), faults


def _control(traced: Traced, start: Start, hub: Path, faults: list[str]) -> list[str]:
    """The same with a sandbox, which has to differ."""
    try:
        support()
    except Unsupported as problem:
        return [f"sandbox: on: not compared, {problem}"]
    boxed = traced.by_hub(hub, sandbox="on")
    count = len(differences(start.process, boxed.process, ""))
    if not count or not boxed.confining:
        faults.append("a start in a sandbox looks like one without")
    return [f"sandbox: on: {count} differences, as there should be"]


def main() -> int:
    parser = arguments("sandbox.unchanged", __doc__)
    parser.add_argument("--before", type=Path, help="the command mcp-hub of an older hub")
    options = parser.parse_args()
    if reason := why_not():
        return reported([f"not compared: {reason}"], [])
    with TemporaryDirectory(prefix="sandbox-unchanged-") as folder:
        say("a start takes some seconds under strace")
        lines, faults = compared(Traced(Path(folder)), options.before)
    return reported(lines, faults)


if __name__ == "__main__":
    sys.exit(main())
