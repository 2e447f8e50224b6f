"""`python -m rigs.sandbox.learn`: `mcp-hub sandbox SERVER --learn --net --yes` on ten servers of registries. Each
then has to start and answer under the rule that was written, and its own processes must not read a canary in the home
folder, which they read outside. Exit code 1 else. `--user` runs everything as another user than root.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import yaml

from rigs.report import arguments, reported, say
from rigs.sandbox import real
from rigs.sandbox.real import Entry
from rigs.sandbox.stand_in import home_of
from tests.e2e.rest_client import RestClient

TEN = ("everything", "memory", "thinking", "filesystem", "hello", "commands", "time", "git", "sqlite", "calculator")
"""Servers of the list that learn: of both registries, with files, a database, a repository, programs, and without."""
_SECONDS = 300
_WAIT = 600.0
_URL = re.compile(r"client:\s+(?P<url>\S+),.*Bearer (?P<token>\S+)")
_NODE = """
const fs = require("fs"), os = require("os"), path = require("path");
if (fs.existsSync(process.env.CANARY_GO)) {
    let outcome = "open";
    try { fs.readFileSync(process.env.CANARY); } catch (problem) { outcome = problem.code; }
    try { fs.writeFileSync(path.join(os.tmpdir(), `canary-${process.pid}`), outcome); } catch {}
}
"""
_PYTHON = """
import errno, os, tempfile
if os.path.exists(os.environ["CANARY_GO"]):
    outcome = "open"
    try:
        open(os.environ["CANARY"]).read()
    except OSError as problem:
        outcome = errno.errorcode[problem.errno]
    try:
        with open(os.path.join(tempfile.gettempdir(), f"canary-{os.getpid()}"), "w") as file:
            file.write(outcome)
    except OSError:
        pass
"""


def probed(root: Path, places: Mapping[str, str]) -> dict[str, str]:
    """Variables by which each Node and Python process of a server tries to read the canary once `go` exists."""
    probe = Path(places["home"]) / "probe"
    probe.mkdir()
    (probe / "canary.cjs").write_text(_NODE)
    (probe / "sitecustomize.py").write_text(_PYTHON)
    canary = Path(places["home"]) / "canary.txt"
    canary.write_text("secret\n")
    return {
        "NODE_OPTIONS": f"--require={probe}/canary.cjs",
        "PYTHONPATH": str(probe),
        "CANARY": str(canary),
        "CANARY_GO": str(root / "go"),
    }


def outcomes(folder: Path) -> list[str]:
    """What came of the canary in each process that tried."""
    return [path.read_text() for path in folder.rglob("canary-*")]


def control(root: Path, variables: Mapping[str, str]) -> list[str]:
    """The same outside of a sandbox, in both languages."""
    folder = root / "control"
    folder.mkdir()
    for line in (["node", "-e", "0"], [sys.executable, "-c", "0"]):
        subprocess.run(line, env={**os.environ, **variables, "TMPDIR": str(folder)}, check=True)
    return outcomes(folder)


@contextmanager
def learning(root: Path, entry: Entry, home: str) -> Iterator["subprocess.Popen[str]"]:
    """The command, while it learns."""
    command = [sys.executable, "-m", "mcp_hub", "sandbox", entry.name, "--learn", "--net", "--yes"]
    state = {"MCP_HUB_CONFIG": str(root / "servers.yaml"), "MCP_HUB_STATE_DIR": str(root / "state"), "HOME": home}
    process = subprocess.Popen(
        [*command, "--for", f"{_SECONDS}s"], env={**os.environ, **state}, cwd=root, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def configured(root: Path, entry: Entry, settings: Mapping[str, Any]) -> None:
    """A configuration without a sandbox."""
    root.mkdir()
    config = {"hub": {"prefix": "never", "expose": "full"}, "servers": {entry.name: settings}}
    (root / "servers.yaml").write_text(json.dumps(config))


async def learned(root: Path, entry: Entry, places: Mapping[str, str]) -> bool:
    """Returns when the rule is written, after a call meanwhile: whether that succeeded. Raises `AssertionError`."""
    with learning(root, entry, places["home"]) as process:
        assert process.stderr is not None
        lines: list[str] = []
        while (match := _URL.search(lines[-1] if lines else "")) is None:
            line = await anyio.to_thread.run_sync(process.stderr.readline)
            assert line, "".join(lines)[-500:]
            lines.append(line)
        is_good = False
        async with RestClient(match["url"], match["token"]) as rest:
            tools = (await rest.ask("GET", "/tools")).json()["tools"]
            for name, values in real.possible_calls(entry, tools, places):
                response = await rest.call(name, values)
                is_good = response.status_code == 200 and not response.json()["result"].get("isError")
                if is_good:
                    break
        process.send_signal(signal.SIGINT)
        printed, messages = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, f"exit code {process.returncode}: {(printed + messages)[-500:]}"
    return is_good


async def attempted(root: Path, entry: Entry, places: Mapping[str, str]) -> tuple[bool, str]:
    """Whether a call succeeded while the server learned, and why it did not learn; empty if it did."""
    try:
        with anyio.fail_after(_WAIT):
            return await learned(root, entry, places), ""
    except (AssertionError, TimeoutError, LookupError) as problem:
        return False, f"{type(problem).__name__} {problem}"


def tried(root: Path, entry: Entry, places: Mapping[str, str], variables: Mapping[str, str]) -> tuple[str, str]:
    """A row of the table, and a fault or nothing."""
    go, folder = Path(variables["CANARY_GO"]), root / entry.name
    go.unlink(missing_ok=True)
    probing = Entry(**{**vars(entry), "env": {**(entry.env or {}), **variables}})
    configured(folder, entry, probing.settings(places))
    was_good, problem = anyio.run(attempted, folder, probing, places)
    if problem:
        return f"| {entry.name} | did not learn | – |", f"{entry.name}: {problem}"
    rule = yaml.safe_load((folder / "servers.yaml").read_text())["servers"][entry.name]["sandbox"]
    go.touch()
    answer = anyio.run(real.answered, folder, probing, places, rule)
    canaries = sorted(set(outcomes(folder)))
    result = answer.error or f"{answer.called}{' failed' if answer.is_error else ''}"
    row = f"| {entry.name} | `{json.dumps(rule)}` | {result}; canary: {', '.join(canaries)} |"
    if not answer.is_good or (was_good and answer.is_error):
        return row, f"{entry.name} does not work: {result} {answer.text[:200]}"
    if canaries != ["EACCES"]:
        return row, f"{entry.name}: the canary was {canaries or 'not tried'}"
    return row, ""


def main() -> int:
    parser = arguments("sandbox.learn", __doc__)
    parser.add_argument("--only", default="", help="servers with this in their names")
    parser.add_argument("--user", default="", help="the number of a user who runs it all, instead of root")
    given = parser.parse_args()
    chosen = [entry for entry in real.entries() if entry.name in TEN and given.only in entry.name]
    lines, faults = ["| server | rule | then |", "| --- | --- | --- |"], []
    with TemporaryDirectory(prefix="sandbox-learn-", ignore_cleanup_errors=True) as name:
        root = Path(name)
        places = home_of(root)
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        if given.user:
            _become(int(given.user), root)
        variables = probed(root, places)
        (root / "go").touch()
        if set(control(root, variables)) != {"open"}:
            faults.append("the canary cannot be read outside of a sandbox either")
        for entry in chosen:
            row, fault = tried(root, entry, places, variables)
            lines.append(row)
            say(row)
            faults += [fault] if fault else []
            shutil.rmtree(root / entry.name, ignore_errors=True)
    return reported(
        [*lines, "", f"{len(chosen)} servers learned, {len(chosen) - len(faults)} work as promised"], faults
    )


def _become(user: int, root: Path) -> None:
    """This process and all that it starts belong to another user from here on."""
    for path in [root, *root.rglob("*")]:
        os.chown(path, user, user, follow_symlinks=False)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.environ["HOME"] = str(root / "home")


if __name__ == "__main__":
    sys.exit(main())
