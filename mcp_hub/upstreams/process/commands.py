"""Where the program of a server's `command` is, and which environment its process gets.

Desktop applications start the hub with a PATH that knows neither Homebrew nor nvm, so the usual places follow PATH.
Children inherit an allow-listed environment: a secret in the hub's own reaches only the server that is to have it.
"""

import difflib
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from mcp_hub.attach.environment import (
    ACCESS,
    SESSION,
    SESSION_PREFIX,
    SYSTEM_PLACES,
    home_places,
    moved_places,
    reaching,
)
from mcp_hub.errors import StartFailed
from mcp_hub.extras import with_extra
from mcp_hub.upstreams.process.child import refuse_here

HINTS = {
    "npx": "Install Node.js, which has npx: https://nodejs.org/en/download",
    "npm": "Install Node.js, which has npm: https://nodejs.org/en/download",
    "node": "Install Node.js: https://nodejs.org/en/download",
    "bunx": "Install Bun, which has bunx: https://bun.sh",
    "bun": "Install Bun: https://bun.sh",
    "deno": "Install Deno: https://deno.com",
    "docker": "Install Docker: https://docs.docker.com/get-docker/",
}


def _hint(command: str) -> str | None:
    """The advice for a program that many servers need; None for another one."""
    if command in ("uv", "uvx"):
        return f"Install uv, which has uvx: {with_extra('uvx')}, or see https://docs.astral.sh/uv/"
    return HINTS.get(command)


NOTHING: Mapping[str, str] = MappingProxyType({})
_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR")
_CONTAINERS = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
_AWS = ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_GOOGLE = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG")
WANTED = {
    **dict.fromkeys(("docker", "nerdctl"), _CONTAINERS),
    "podman": (*_CONTAINERS, "CONTAINER_HOST", "XDG_RUNTIME_DIR"),
    **dict.fromkeys(("kubectl", "kubernetes", "k8s", "helm", "openshift", "argocd", "istio"), ("KUBECONFIG",)),
    **dict.fromkeys(("aws", "awslabs", "bedrock", "s3", "dynamodb", "cloudwatch"), _AWS),
    **dict.fromkeys(("gcloud", "gcp", "google", "bigquery", "vertex", "vertexai", "firebase", "firestore"), _GOOGLE),
    **dict.fromkeys(("azure", "azmcp"), ("AZURE_CONFIG_DIR", "AZURE_TENANT_ID", "AZURE_SUBSCRIPTION_ID")),
    **dict.fromkeys(("git", "ssh", "rsync", "ansible"), ("SSH_AUTH_SOCK",)),
    **dict.fromkeys(("playwright", "puppeteer", "selenium", "chrome", "chromium", "browser", "desktop"), _BROWSER),
    **dict.fromkeys(
        ("keyring", "keychain", "dbus", "notify", "mpris"), ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR")
    ),
}
"""Variables of `ACCESS` that programs want, by a word of their command line."""


def wanted_variables(command: str, args: Iterable[str]) -> list[str]:
    """The variables that a known command wants of `ACCESS`: a proposal for `pass_env`."""
    words = re.findall(r"[a-z0-9]+", " ".join([os.path.basename(command), *args]).lower())
    return list(dict.fromkeys(name for word in words for name in WANTED.get(word, ())))


def proposed_variables(
    command: str, args: Iterable[str], passed: Iterable[str], env: Mapping[str, str], output: str = ""
) -> list[str]:
    """The variables for `pass_env` that a server may lack: set here, not in `passed`, and wanted by a known command or
    named in its `output`.
    """
    wanted = {*wanted_variables(command, args), *re.findall(r"\b[A-Z][A-Z0-9_]{3,63}\b", output)}
    return [name for name in withheld(env) if name in wanted and name not in passed]


def withheld(env: Mapping[str, str]) -> list[str]:
    """The variables of `ACCESS` that are set: no server gets them unless its entry names them."""
    prefixes = tuple(name[:-1] for name in ACCESS if name.endswith("*"))
    return sorted(name for name, value in env.items() if value and (name in ACCESS or name.startswith(prefixes)))


def resolve(command: str, env_path: str | None, home: str, cwd: str, env: Mapping[str, str] = NOTHING) -> str:
    """The absolute path of the program: `command` itself if it is a path (`~` and relative to `cwd` allowed), else
    found on `env_path` and then in the usual places, some of which `env` moves. Raises `StartFailed`, which lists them
    and advises, and on Windows refuses every program.
    """
    refuse_here()
    if os.path.dirname(command):
        return _existing(_absolute(command, home, cwd))
    on_path = [_absolute(entry, home, cwd) for entry in (env_path or os.defpath).split(os.pathsep) if entry]
    places = list(dict.fromkeys([*on_path, *_usual_places(home, env)]))
    found = shutil.which(command, path=os.pathsep.join(places)) if command else None
    if found is not None:
        return found
    advice = _hint(command) or _split_up(command) or _nearest(command) or 'Install it, or set "command" to its path.'
    raise StartFailed("command_not_found", f"command not found: {command}. {advice}", tuple(places))


def _nearest(command: str) -> str:
    close = difflib.get_close_matches(command[:64], (*HINTS, "uv", "uvx"), n=1, cutoff=0.75)
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


def _usual_places(home: str, env: Mapping[str, str]) -> list[str]:
    """The hub's own interpreter first: uv in the same environment makes `uvx` work."""
    places = [os.path.dirname(sys.executable), *SYSTEM_PLACES]
    return [*places, *moved_places(env), *home_places(home)]
