"""`python -m rigs.sandbox.real`: servers of public registries, each started without a sandbox and with `sandbox: on`.
Of those that answer outside, three of four have to answer inside without any further setting; else the exit code is 1.

Every server is downloaded by npx or uvx, inside once more: the whole list takes long. `servers.toml` has the list.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from rigs.report import arguments, reported, say
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT

LIST = Path(__file__).with_name("servers.toml")
SHARE = 0.75
"""Of the servers that answer outside, those that have to answer inside."""
_START = 240.0
"""Seconds for a start with its download."""
_SETTINGS = (".npmrc", ".config/pip", ".config/uv")
"""What names the package indexes of this machine."""
_VALUES: Mapping[str, Any] = {"string": "note", "number": 1, "integer": 1, "boolean": False, "array": [], "object": {}}


@dataclass(frozen=True)
class Entry:
    """A server of the list."""

    name: str
    package: str
    version: str
    args: Sequence[str] = ()
    command: str = ""
    env: Mapping[str, str] | None = None
    tool: str = ""
    arguments: Mapping[str, Any] | None = None

    def settings(self, places: Mapping[str, str]) -> dict[str, Any]:
        """Its entry in `servers.yaml`, without the key `sandbox`."""
        registry, _, package = self.package.partition(":")
        if registry == "npm":
            line = ["npx", "-y", f"{package}@{self.version}"]
        else:
            line = ["uvx", "--from", f"{package}=={self.version}", self.command or package]
        args = [*line[1:], *(str(filled(one, places)) for one in self.args)]
        return {"command": line[0], "args": args, "env": dict(self.env or {}), "start_timeout": f"{_START:.0f}s"}


@dataclass(frozen=True)
class Answered:
    """What came of one start: how many tools it listed, and whether a call had a result; else the error."""

    tools: int = 0
    called: str = ""
    error: str = ""

    @property
    def is_good(self) -> bool:
        return not self.error


def entries(path: Path = LIST) -> list[Entry]:
    """The list, in its order."""
    return [Entry(name, **fields) for name, fields in tomllib.loads(path.read_text("utf-8")).items()]


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """A value with the folders in place of their names."""
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace(f"{{{name}}}", place)
        return value
    if isinstance(value, Mapping):
        return {name: filled(one, places) for name, one in value.items()}
    return [filled(one, places) for one in value] if isinstance(value, list) else value


def chosen_call(entry: Entry, tools: Sequence[Mapping[str, Any]], places: Mapping[str, str]) -> tuple[str, Any]:
    """The tool that is called, and its arguments. Raises: `LookupError` if there is none."""
    if entry.tool:
        return entry.tool, filled(entry.arguments or {}, places)
    schemas = [(one["name"], one.get("inputSchema", {})) for one in tools]
    for name, schema in schemas:
        if not schema.get("required"):
            return name, {}
    if not schemas:
        raise LookupError("it has no tools")
    name, schema = schemas[0]
    return name, {key: _value(schema.get("properties", {}).get(key, {})) for key in schema["required"]}


def _value(schema: Mapping[str, Any]) -> Any:
    """A value that a simple schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    return _VALUES.get(schema.get("type", "string"), "note")


async def answered(root: Path, entry: Entry, places: Mapping[str, str], sandbox: str | None) -> Answered:
    """Starts a hub with this server alone, and calls one tool."""
    settings = entry.settings(places) | ({} if sandbox is None else {"sandbox": sandbox})
    config = {"hub": {"prefix": "never", "expose": "full"}, "servers": {entry.name: settings}}
    await anyio.Path(root).mkdir()
    async with http_hub(json.dumps(config), root, HOME=places["home"]) as hub, RestClient(hub) as rest:
        report = await _report(rest)
        if report["state"] != "ready":
            return Answered(
                error=": ".join(str(report[key]) for key in ("state", "code", "reason") if report.get(key))[:300]
            )
        tools = (await rest.ask("GET", "/tools")).json()["tools"]
        try:
            name, given = chosen_call(entry, tools, places)
        except LookupError as exc:
            return Answered(error=str(exc))
        with anyio.move_on_after(3 * WAIT):
            response = await rest.call(name, given)
            if response.status_code != 200:
                return Answered(len(tools), name, response.text[:300])
            result = response.json()["result"]
            if result.get("isError"):
                return Answered(len(tools), f"{name}: {str(result['content'])[:200]}", "")
            return Answered(len(tools), name)
    return Answered(error="no answer to a call")


async def _report(rest: RestClient) -> Mapping[str, Any]:
    """What the hub reports of the server, once it is up or has failed."""
    with anyio.fail_after(_START + WAIT):
        while True:
            (report,) = (await rest.ask("GET", "/servers")).json()["servers"]
            if report["state"] not in ("starting", "waiting"):
                return dict(report)
            await anyio.sleep(0.5)


def _home(root: Path) -> dict[str, str]:
    """A home folder with the settings of package indexes, a folder and a repository."""
    home, real = root / "home", Path.home()
    data, repo = home / "data", home / "repo"
    data.mkdir(parents=True)
    (data / "note.md").write_text("a note\n")
    for name in _SETTINGS:
        source, target = real / name, home / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    return {"home": str(home), "data": str(data), "repo": str(repo)}


def _line(entry: Entry, outside: Answered, inside: Answered | None) -> str:
    cells = [entry.name, f"{entry.package.partition(':')[2]} {entry.version}", _cell(outside), _cell(inside)]
    return f"| {' | '.join(cells)} |"


def _cell(one: Answered | None) -> str:
    if one is None:
        return "–"
    text = f"{one.tools} tools, `{one.called}`" if one.is_good else one.error
    return " ".join(text.replace("|", "/").split())[:160]


async def _both(root: Path, entry: Entry, places: Mapping[str, str]) -> tuple[Answered, Answered | None]:
    """Outside first; inside only if it answers there."""
    outside = await _tried(root / f"{entry.name}-outside", entry, places, None)
    if not outside.is_good:
        return outside, None
    inside = await _tried(root / f"{entry.name}-inside", entry, places, "on")
    if inside.is_good and (": " in inside.called) and (": " not in outside.called):
        inside = Answered(inside.tools, inside.called, f"an error that is not there outside: {inside.called}")
    return outside, inside


async def _tried(root: Path, entry: Entry, places: Mapping[str, str], sandbox: str | None) -> Answered:
    try:
        return await answered(root, entry, places, sandbox)
    except (AssertionError, TimeoutError, KeyError, ValueError) as exc:
        return Answered(error=f"{type(exc).__name__}: {exc}"[:300])


def main() -> int:
    parser = arguments("sandbox.real", __doc__)
    parser.add_argument("--only", default="", help="servers with this in their names or packages")
    given = parser.parse_args()
    chosen = [one for one in entries() if given.only in one.name or given.only in one.package]
    lines = ["| server | package | without a sandbox | `sandbox: on` |", "| --- | --- | --- | --- |"]
    counts = [0, 0]
    faults = []
    with TemporaryDirectory(prefix="sandbox-real-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        places = _home(root)
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        for entry in chosen:
            outside, inside = anyio.run(_both, root, entry, places)
            lines.append(_line(entry, outside, inside))
            say(lines[-1])
            counts[0] += outside.is_good
            counts[1] += inside is not None and inside.is_good
            for name in (f"{entry.name}-outside", f"{entry.name}-inside"):
                shutil.rmtree(root / name, ignore_errors=True)
    if counts[1] < SHARE * counts[0]:
        faults.append(f"{counts[1]} of {counts[0]} servers answer in a sandbox, {SHARE:.0%} have to")
    summary = f"{len(chosen)} servers, {counts[0]} answer outside of a sandbox, {counts[1]} of them inside"
    return reported([*lines, "", summary], faults)


if __name__ == "__main__":
    sys.exit(main())
