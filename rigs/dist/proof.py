"""The proof: the wheel, installed from a folder of wheels into a fresh environment without network, speaks MCP."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mcp_hub.types import JsonObject
from rigs.dist import documents
from rigs.dist.build import run
from rigs.dist.facts import Facts

_SECONDS: Final = 60
_CONFIG: Final = "servers: {jobs: {local: 'mcp_hub.examples.jobs:registry'}}\n"
_HOSTILE: Final = "servers: {hostile: {command: /bin/false}}\n"
_ASKED: Final[list[JsonObject]] = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "proof", "version": "1"}},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    {
        "jsonrpc": "2.0",
        "id": 3,
        "method": "tools/call",
        "params": {"name": "jobs_run_job", "arguments": {"steps": 1, "seconds": 0.1}},
    },
]


def without_network() -> list[str]:
    """A command in front of others, by which they have no network; empty where the system does not allow that."""
    line = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        return []
    return line if subprocess.run([*line, "true"], capture_output=True).returncode == 0 else []


def installed(facts: Facts, wheels: Path, folder: Path) -> Path:
    """The command `mcp-hub` in a fresh environment with nothing but what the folder of wheels has."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--isolated", "install", "--quiet", "--disable-pip-version-check"]
    run(*without_network(), *pip, "--no-index", "--find-links", wheels, f"{facts.name}=={facts.version}")
    return folder / "bin" / "mcp-hub"


def ways(facts: Facts, hub: Path, dist: Path) -> dict[str, list[str]]:
    """The commands by which clients start the hub: the installed one, that of the plugins, that of the bundle."""
    uv = str(Path(sys.executable).with_name("uv"))
    bundle = documents.mcpb_manifest(facts)["server"]["mcp_config"]["args"]
    places = {"${__dirname}": str(_bundle_for_here(dist)), "${user_config.config}": "@user"}
    return {
        "installed": [str(hub), *facts.command[2:]],
        "plugin": [f"{uv}x", *facts.command[1:]],
        "bundle": [uv, *(places.get(arg, arg) for arg in bundle)],
    }


def _bundle_for_here(dist: Path) -> Path:
    """A copy of the bundle for this system and Python only: the folder of wheels has none for others."""
    copy = dist / "run-bundle"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dist / documents.MCPB, copy)
    project = copy / "pyproject.toml"
    here = {
        "environments": f"[\"sys_platform == '{sys.platform}'\"]",
        "requires-python": f'"=={sys.version_info.major}.{sys.version_info.minor}.*"',
    }
    text = project.read_text()
    for key, value in here.items():
        text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
    project.write_text(text)
    return copy


def spoken(command: Sequence[str], folder: Path, wheels: Path) -> list[str]:
    """Speaks MCP to a hub over stdio, as a client that starts it in a folder of somebody else; what went wrong.

    The hub has the configuration of the user and one server, Python functions, so that it needs no network. If uv
    starts it, it comes from the folder of wheels.
    """
    project, home = folder / "project", folder / "home"
    for place in (project, home, folder / "uv"):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
    (project / "servers.yaml").write_text(_HOSTILE)
    (home / "servers.yaml").write_text(_CONFIG)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), "MCP_HUB_CONFIG": str(home / "servers.yaml")}
    env["MCP_HUB_STATE_DIR"] = str(home / "state")
    env |= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels), "UV_CACHE_DIR": str(folder / "uv"), "UV_OFFLINE": "1"}
    env |= {"UV_PYTHON": sys.executable, "UV_NO_CONFIG": "1"}
    process = subprocess.Popen(
        [*without_network(), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=project, env=env, text=True
    )
    try:
        answers = _exchange(process)
    finally:
        process.kill()
        process.wait()
    return list(_faults(answers))


def _exchange(process: "subprocess.Popen[str]") -> dict[object, JsonObject]:
    """The answers by id, each asked for when the one before is there."""
    assert process.stdin is not None and process.stdout is not None
    answers: dict[object, JsonObject] = {}
    for asked in _ASKED:
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        while "id" in asked and asked["id"] not in answers:
            line = process.stdout.readline()
            if not line:
                return answers
            message = json.loads(line)
            if "result" in message or "error" in message:
                answers[message.get("id")] = message
    process.stdin.close()
    process.wait(_SECONDS)
    return answers


def _faults(answers: dict[object, JsonObject]) -> list[str]:
    if len(answers) < 3 or any("error" in own for own in answers.values()):
        return [f"the hub did not answer as it should: {answers}"]
    names = [tool["name"] for tool in answers[2]["result"]["tools"]]
    faults = [] if "jobs_run_job" in names else [f"the tool is not listed: {names}"]
    return faults if not answers[3]["result"].get("isError") else [*faults, f"the call failed: {answers[3]}"]
