"""Finds the program of a server's `command` and composes its environment.

Usual places follow PATH: desktop applications give a short one. Children inherit only allowed variables.
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
from mcp_hub.globs import late
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
    """The variables of `ACCESS` that a known command needs."""
    words = re.findall(r"[a-z0-9]+", " ".join([os.path.basename(command), *args]).lower())
    return list(dict.fromkeys(name for word in words for name in WANTED.get(word, ())))


def proposed_variables(
    command: str, args: Iterable[str], passed: Iterable[str], env: Mapping[str, str], output: str = ""
) -> list[str]:
    """Variables for `pass_env`: set, not yet passed, and needed by the command or named in its `output`."""
    names = {*wanted_variables(command, args), *re.findall(r"\b[A-Z][A-Z0-9_]{3,63}\b", output)}
    return [name for name in withheld(env) if name in names and name not in passed]


def withheld(env: Mapping[str, str]) -> list[str]:
    """The variables of `ACCESS` that are set; servers do not inherit them."""
    prefixes = tuple(name[:-1] for name in ACCESS if name.endswith("*"))
    return sorted(name for name, value in env.items() if value and (name in ACCESS or name.startswith(prefixes)))


_NO_PACKAGE = late(r"npm (?:error|ERR!) (?:code )?E?404\b|was not found in the package registry", re.IGNORECASE)
_NAMED = late(
    r"npm (?:error|ERR!) 404 (?:The requested resource )?'(@?[^'@ ]{1,214})(?:@[^']{0,214})?' (?:is not|could not)"
    r"|(\S{1,214}) was not found in the package registry",
    re.IGNORECASE,
)
_DRAWN = late(r"[\s|│╰─▶×]+")
"""Between the words of an output: uv draws lines and breaks them."""


def package_problem(output: str) -> str | None:
    """Says that a package does not exist, if npm or uv say so in a server's output."""
    text = _DRAWN.sub(" ", output)
    if not _NO_PACKAGE.search(text):
        return None
    named = _NAMED.search(text)
    name = (named[1] or named[2]) if named else ""
    # npm answers the same for a private package to those who are not logged in
    return f"The package {name}".rstrip() + (" does not exist, or is private" if name[:1] == "@" else " does not exist")


def resolve(command: str, env_path: str | None, home: str, cwd: str, env: Mapping[str, str] = NOTHING) -> str:
    """The absolute path of a program: a path (`~` and relative to `cwd` allowed), or a name on `env_path` or in usual
    places.

    Raises `StartFailed`, on Windows always.
    """
    refuse_here()
    if os.path.dirname(command):
        return _existing(_absolute(command, home, cwd))
    on_path = [_absolute(entry, home, cwd) for entry in (env_path or os.defpath).split(os.pathsep) if entry]
    places = list(dict.fromkeys([*on_path, *_usual_places(home, env)]))
    path = shutil.which(command, path=os.pathsep.join(places)) if command else None
    if path is not None:
        return path
    advice = _hint(command) or _split_up(command) or _nearest(command) or 'Install it, or set "command" to its path.'
    raise StartFailed("command_not_found", f"command not found: {command}. {advice}", tuple(places))


def _nearest(command: str) -> str:
    close = difflib.get_close_matches(command[:64], (*HINTS, "uv", "uvx"), n=1, cutoff=0.75)
    return f"Did you mean {close[0]}?" if close else ""


def child_env(
    parent: Mapping[str, str], extra: Mapping[str, str], path_additions: Iterable[str], passed: Iterable[str] = ()
) -> dict[str, str]:
    """Allowed variables of `parent`, those in `passed`, and `extra`.

    `path_additions` and the folder of the hub's interpreter are last on PATH.
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
    program = shutil.which(path)
    if program is not None:
        return program
    if os.path.isdir(path):
        raise StartFailed("not_executable", f'"command" is a folder: {path}. Set it to a program in the folder.')
    if os.path.exists(path):
        raise StartFailed("not_executable", f'"command" is not executable: {path}. Run: chmod +x {path}')
    raise StartFailed("command_not_found", f"command not found: {path}. {_split_up(path) or 'Correct the path.'}")


def _split_up(command: str) -> str:
    return '"command" is the program alone: move its arguments to "args".' if len(command.split()) > 1 else ""


def _usual_places(home: str, env: Mapping[str, str]) -> list[str]:
    places = [os.path.dirname(sys.executable), *SYSTEM_PLACES]
    return [*places, *moved_places(env), *home_places(home)]
