"""The environment of a background hub: that of the user, and of the client that starts it only what is harmless.

A background hub outlives the client that happened to start it, and serves others. Variables that tell its behaviour
are part of its scope (`folder.scope_of`), so clients with other values have another hub.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TELLING = (
    *("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "MCP_HUB_STATE_DIR"),
    *("MCP_HUB_TRUST_CONFIG", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Variables that tell where a hub keeps its files, whom it trusts and how it reaches others."""
_HARMLESS = frozenset(
    """
    USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TMP TEMP DBUS_SESSION_BUS_ADDRESS PYTHONPATH VIRTUAL_ENV
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    """.split()
)
_PREFIXES = ("LC_", "XDG_", "SSL_CERT_", "PIP_", "UV_", "NPM_CONFIG_", "npm_config_", "OTEL_")
_USUAL_PATH = ("/usr/local/bin", "/opt/homebrew/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")


def hub_environment(env: "Mapping[str, str]", names: "Collection[str]") -> dict[str, str]:
    """The environment of the hub; `names` are the variables that its configuration names."""
    wanted = {*TELLING, *_HARMLESS, *names}
    own = {name: value for name, value in env.items() if name in wanted or name.startswith(_PREFIXES)}
    given = [entry for entry in env.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
    own["PATH"] = os.pathsep.join(dict.fromkeys([*given, *filter(os.path.isdir, _USUAL_PATH)]))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.basename(root) not in ("site-packages", "dist-packages"):  # run from its source
        own["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [own.get("PYTHONPATH")])])
    return own


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
