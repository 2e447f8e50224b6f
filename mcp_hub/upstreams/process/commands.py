"""Where the program of a server's `command` is, and which environment its process gets.

Desktop applications start the hub with a PATH that knows neither Homebrew nor nvm, so the usual places follow PATH.
Children inherit an allow-listed environment: a secret in the hub's own reaches only the server that is to have it.
"""

import difflib
import glob
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping

from mcp_hub.attach.environment import SESSION, SESSION_PREFIX, reaching
from mcp_hub.errors import StartFailed

SYSTEM_PLACES = ("/opt/homebrew/bin", "/usr/local/bin")
HOME_PLACES = (".local/bin", ".cargo/bin", ".volta/bin", ".bun/bin", ".deno/bin")
NVM_VERSIONS = ".nvm/versions/node"

HINTS = {
    "npx": "Install Node.js, which has npx: https://nodejs.org/en/download",
    "npm": "Install Node.js, which has npm: https://nodejs.org/en/download",
    "node": "Install Node.js: https://nodejs.org/en/download",
    "uvx": "Install uv, which has uvx: pip install 'mcp-hub[uvx]', or see https://docs.astral.sh/uv/",
    "uv": "Install uv: pip install 'mcp-hub[uvx]', or see https://docs.astral.sh/uv/",
    "bunx": "Install Bun, which has bunx: https://bun.sh",
    "bun": "Install Bun: https://bun.sh",
    "deno": "Install Deno: https://deno.com",
    "docker": "Install Docker: https://docs.docker.com/get-docker/",
}


def resolve(command: str, env_path: str | None, home: str, cwd: str) -> str:
    """The absolute path of the program: `command` itself if it is a path (`~` and relative to `cwd` allowed), else
    found on `env_path` and then in the usual places. Raises `StartFailed`, which lists them and advises.
    """
    if os.path.dirname(command):
        return _existing(_absolute(command, home, cwd))
    on_path = [_absolute(entry, home, cwd) for entry in (env_path or os.defpath).split(os.pathsep) if entry]
    places = list(dict.fromkeys([*on_path, *_usual_places(home)]))
    found = shutil.which(command, path=os.pathsep.join(places)) if command else None
    if found is not None:
        return found
    advice = (
        HINTS.get(command) or _split_up(command) or _nearest(command) or 'Install it, or set "command" to its path.'
    )
    raise StartFailed("command_not_found", f"command not found: {command}. {advice}", tuple(places))


def _nearest(command: str) -> str:
    close = difflib.get_close_matches(command[:64], HINTS, n=1, cutoff=0.75)
    return f"Did you mean {close[0]}?" if close else ""


def child_env(
    parent: Mapping[str, str], extra: Mapping[str, str], path_additions: Iterable[str], passed: Iterable[str] = ()
) -> dict[str, str]:
    """The environment of a child: of the hub's own what the table of `attach.environment` names, then what the
    configuration names, by `passed` (names) and `extra` (values).

    `path_additions` (so that `npx` finds its `node`) and the folder of the hub's own interpreter are last on PATH.
    """
    env = {name: value for name, value in parent.items() if name in SESSION or name.startswith(SESSION_PREFIX)}
    env |= reaching(parent)
    env |= {name: parent[name] for name in passed if name in parent}
    env = {name: value for name, value in env.items() if not value.startswith("()")}  # a function of a shell
    env.update(extra)
    entries = [entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry]
    env["PATH"] = os.pathsep.join(dict.fromkeys([*entries, *path_additions, os.path.dirname(sys.executable)]))
    return env


def _absolute(path: str, home: str, cwd: str) -> str:
    if path == "~" or path.startswith(("~/", "~\\")):
        path = home + path[1:]
    return os.path.normpath(os.path.join(cwd, path))


def _existing(path: str) -> str:
    found = shutil.which(path)
    if found is not None:
        return found
    if os.path.isdir(path):
        raise StartFailed("not_executable", f'"command" is a folder: {path}. Set it to a program in the folder.')
    if os.path.exists(path):
        raise StartFailed("not_executable", f'"command" is not executable: {path}. Run: chmod +x {path}')
    raise StartFailed("command_not_found", f"command not found: {path}. {_split_up(path) or 'Correct the path.'}")


def _split_up(command: str) -> str:
    """Advice about a command that may be a whole line of a shell."""
    return '"command" is the program alone: move its arguments to "args".' if len(command.split()) > 1 else ""


def _usual_places(home: str) -> list[str]:
    """The hub's own interpreter first: `pip install mcp-hub uv` in one environment makes `uvx` work."""
    places = [os.path.dirname(sys.executable), *SYSTEM_PLACES]
    places += [os.path.join(home, place) for place in HOME_PLACES]
    return places + _newest_node(os.path.join(home, NVM_VERSIONS))


def _newest_node(versions: str) -> list[str]:
    found = glob.glob(os.path.join(glob.escape(versions), "*", "bin"))
    return sorted(found, key=_version)[-1:]


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))
