"""The one table of environment variables: those that a hub and its servers get, and those that tell hubs apart.

A background hub outlives the client that starts it and serves others. So its servers get from a client only the
variables of `REACH` and those that the configuration names: all of them belong to the scope (`folder.scope_of`), and
clients with other values have another hub. docs/secrets.md has the table with its reasons.
"""

import os
import sys

from mcp_hub.attach.arguments import state_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
_BY_NPM = ("registry", "proxy", "https_proxy", "noproxy", "cafile", "ca")
REACH = frozenset(
    (
        *_PROXIES,
        *("PIP_PROXY", "NODE_USE_ENV_PROXY"),
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"),
        *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX"),
        *("BUN_CONFIG_REGISTRY", "YARN_NPM_REGISTRY_SERVER", "JSR_URL", "GOPROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"),
        *("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "DENO_CERT", "DENO_TLS_CA_STORE", "CARGO_HTTP_CAINFO"),
        *("PIP_CERT", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"),
        *(f"NPM_CONFIG_{setting.upper()}" for setting in _BY_NPM),
    )
)
"""Variables that tell how to reach package indexes and the network, and whom to trust there. Servers get them."""
REACH_PREFIX = "UV_INDEX_"
"""Begins further names of `REACH`, one for each index, unless a name says that its value is a credential."""
_CREDENTIAL = ("TOKEN", "PASSWORD", "SECRET", "AUTH", "KEY")
_NPM_RUNS = ("npm_execpath", "npm_command", "npm_lifecycle_event")
SESSION = frozenset(
    """
    PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TMP TEMP
    XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_CACHE_HOME
    """.split()
)
"""Variables that servers get of the hub itself. A background hub has few of them, and none with a client's value."""
SESSION_PREFIX = "LC_"
ACCESS = (
    *("DOCKER_*", "CONTAINER_HOST", "SSH_AUTH_SOCK", "KUBECONFIG", "AWS_*", "AZURE_*", "GOOGLE_*", "CLOUDSDK_*"),
    *("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
)
"""Variables that open an account, a machine or the desktop, `*` at the end: only for an entry with `pass_env`."""
_HOME = "HOME"
_SWITCHES = ("MCP_HUB_TRUST_CONFIG", "MCP_HUB_DUMPABLE")
"""Variables that mean something as 1 only."""
_STATE = "MCP_HUB_STATE_DIR"
_RUNTIME = "XDG_RUNTIME_DIR"
_BUS = "DBUS_SESSION_BUS_ADDRESS"
_USUAL_PATH = ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
_LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"


def reaching(env: "Mapping[str, str]") -> dict[str, str]:
    """The variables of `REACH` that are set and not empty.

    Lower-case names of npm count as the capital ones do, but not in a program that npm runs: there they repeat the
    settings of npm's own files.
    """
    names = REACH if any(name in env for name in _NPM_RUNS) else {*REACH, *(f"npm_config_{name}" for name in _BY_NPM)}
    return {name: value for name, value in env.items() if value and (name in names or _is_index(name))}


def _is_index(name: str) -> bool:
    return name.startswith(REACH_PREFIX) and not any(word in name.upper() for word in _CREDENTIAL)


def scope_values(env: "Mapping[str, str]", names: "Collection[str]") -> dict[str, str]:
    """The variables that tell hubs apart, with their values; `names` are those that the configuration names.

    Forms that mean the same have one value: `HOME` with a slash at its end, and a switch that is off.
    """
    values = {name: "1" for name in _SWITCHES if env.get(name) == "1"}
    values |= {name: env[name] for name in (_HOME, *names) if name in env}
    if os.path.isabs(values.get(_HOME, "")):
        values[_HOME] = os.path.sep + os.path.normpath(values[_HOME]).lstrip(os.path.sep)
    return {**values, **reaching(env), _STATE: state_folder(env)}


def hub_environment(env: "Mapping[str, str]", names: "Collection[str]") -> dict[str, str]:
    """The environment of a background hub; `names` are the variables that its configuration names.

    User, shell and locale are those of the account and the hub. XDG_RUNTIME_DIR and the session bus are for the hub
    itself: systemd, and the keyring.
    """
    hub = {**_account(env), "LANG": _LOCALE}
    if (runtime := runtime_folder(env)) is not None:
        hub[_RUNTIME] = runtime
        if os.path.exists(os.path.join(runtime, "bus")):
            hub[_BUS] = f"unix:path={runtime}/bus"
    if env.get(_BUS):
        hub[_BUS] = env[_BUS]
    hub |= scope_values(env, names)
    absolute = [entry for entry in env.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    hub["PATH"] = os.pathsep.join(dict.fromkeys([*absolute, *filter(os.path.isdir, _USUAL_PATH)]))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.basename(root) not in ("site-packages", "dist-packages"):  # run from its source
        hub["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [hub.get("PYTHONPATH")])])
    return hub


def _account(env: "Mapping[str, str]") -> dict[str, str]:
    """Name and shell of the user; for a number without an account what the client has."""
    import pwd  # only where a hub is started

    try:
        account = pwd.getpwuid(os.geteuid())
    except KeyError:
        return {name: env[name] for name in ("USER", "LOGNAME", "SHELL") if name in env}
    return {"USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": account.pw_shell or "/bin/sh"}


def runtime_folder(env: "Mapping[str, str]") -> str | None:
    """`$XDG_RUNTIME_DIR`, else its usual path on Linux if it exists: many desktop clients pass on few variables."""
    folder = env.get(_RUNTIME)
    if folder is None and sys.platform == "linux":
        folder = f"{USUAL_RUNTIME}/{os.geteuid()}"
        return folder if os.path.isdir(folder) else None
    return folder or None


USUAL_RUNTIME = "/run/user"


def why_not(env: "Mapping[str, str]") -> str | None:
    """Why `auto` does not attach here: in a container or in CI a hub that stays would be in the way."""
    if sys.platform == "win32":
        return "background hubs are not available on Windows"
    if env.get("CI", "").lower() not in ("", "0", "false"):
        return "this is CI"
    if "container" in env or "KUBERNETES_SERVICE_HOST" in env:
        return "this is a container"
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return "this is a container"
    return None
