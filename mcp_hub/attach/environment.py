"""The environment variables that hubs and servers get, and that tell hubs apart.

From a client, servers get only those of `REACH` and those that the configuration names. The configuration is read
without a YAML parser: too many variables are harmless, too few are not; an uncertain text is left to the whole command.
"""

import os
import stat
import sys

from mcp_hub.attach.arguments import state_folder
from mcp_hub.attach.system import account, user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


LARGEST = 1 << 20
"""Bytes of a configuration that is read."""
_ESCAPED = (b"$\\", b"\\u0024", b"\\x24", b"\\u007b", b"\\x7b", b"\\U00000024", b"\\U0000007b", b"\\u{24", b"\\u{7b")
"""Ways in which YAML, JSON5 and TOML write `$` or `{` so that it does not show."""
_BY_NAME = (b"env_var", b"env_http_headers", b"env_keys", b"${{")
"""Keys of Codex and Goose, and the notation of Continue, in which variables stand by their plain names."""
_PASSED = b"pass_env"
"""The key of a list of names."""
_MODES = (b"auto", b"always", b"never")
_BEFORE_KEY = (b"", b" ", b"\t", b"{", b",", b'"', b"'")
_NO_MARKS = bytes(32 if byte in b"\t\r\"',}#" else byte for byte in range(256))
_WORD = bytes(byte if chr(byte).isalnum() and byte < 128 or byte == 95 else 32 for byte in range(256))
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
"""Variables for package indexes, the network and trust anchors. Servers get them."""
REACH_PREFIX = "UV_INDEX_"
"""Prefix of further names of `REACH`, one for each index, unless the name is that of a credential."""
_CREDENTIAL = ("TOKEN", "PASSWORD", "SECRET", "AUTH", "KEY")
_NPM_RUNS = ("npm_execpath", "npm_command", "npm_lifecycle_event")
SESSION = frozenset(
    """
    PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TMP TEMP
    XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_CACHE_HOME
    """.split()
)
"""Variables that servers get from the hub. A background hub has few, none with a client's value."""
SESSION_PREFIX = "LC_"
ACCESS = (
    *("DOCKER_*", "CONTAINER_HOST", "SSH_AUTH_SOCK", "KUBECONFIG", "AWS_*", "AZURE_*", "GOOGLE_*", "CLOUDSDK_*"),
    *("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY"),
)
"""Variables that open an account, a machine or the desktop: only by `pass_env`. `*` ends a prefix."""
_HOME = "HOME"
_SWITCHES = ("MCP_HUB_TRUST_CONFIG", "MCP_HUB_DUMPABLE")
"""Variables that mean something as 1 only."""
_STATE = "MCP_HUB_STATE_DIR"
_RUNTIME = "XDG_RUNTIME_DIR"
_BUS = "DBUS_SESSION_BUS_ADDRESS"
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
"""Folders that belong to the system, and are on the path of every account."""
SYSTEM_PLACES = (
    *("/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin", "/opt/local/bin", "/snap/bin"),
    *("/nix/var/nix/profiles/default/bin", "/run/current-system/sw/bin"),
)
HOME_PLACES = (
    *(".local/bin", "bin", ".cargo/bin", "go/bin", ".nix-profile/bin", ".local/state/nix/profile/bin"),
    *(".linuxbrew/bin", ".pixi/bin", ".rd/bin", ".orbstack/bin", ".docker/bin"),
    *(".volta/bin", ".bun/bin", ".deno/bin", "n/bin", ".n/bin", ".nodebrew/current/bin", ".yarn/bin"),
    *(".local/share/pnpm", ".local/share/pnpm/bin", "Library/pnpm", "Library/pnpm/bin", ".npm-global/bin"),
    *(".local/share/fnm/aliases/default/bin", ".fnm/aliases/default/bin"),
    "Library/Application Support/fnm/aliases/default/bin",
    *(".local/share/mise/shims", ".asdf/shims", ".nodenv/shims", ".pyenv/shims", ".rbenv/shims", ".proto/shims"),
    *(".proto/bin", ".rye/shims"),
)
"""Folders of version managers and installers below the home folder, each for the default version."""
MOVED_PLACES = {
    **dict.fromkeys(("GOBIN", "UV_TOOL_BIN_DIR", "PIPX_BIN_DIR", "XDG_BIN_HOME"), ("",)),
    **dict.fromkeys(
        ("GOPATH", "CARGO_HOME", "VOLTA_HOME", "BUN_INSTALL", "DENO_INSTALL", "DENO_INSTALL_ROOT"), ("bin",)
    ),
    **dict.fromkeys(("N_PREFIX", "PIXI_HOME", "NPM_CONFIG_PREFIX", "HOMEBREW_PREFIX"), ("bin",)),
    **dict.fromkeys(("ASDF_DATA_DIR", "MISE_DATA_DIR"), ("shims",)),
    **dict.fromkeys(("NODENV_ROOT", "PYENV_ROOT", "RBENV_ROOT", "RYE_HOME"), ("shims",)),
    "PROTO_HOME": ("shims", "bin"),
    "NODEBREW_ROOT": ("current/bin",),
    "PNPM_HOME": ("", "bin"),
    "FNM_DIR": ("aliases/default/bin",),
    "XDG_DATA_HOME": ("pnpm", "pnpm/bin", "fnm/aliases/default/bin", "mise/shims"),
}
"""Variables by which users move the folders of `HOME_PLACES`, with the places below; `NVM_DIR` is nvm's."""
_NVM_DIR = "NVM_DIR"
NVM_PLACES = (".nvm", ".config/nvm")
NVM_VERSIONS = "versions/node"
_LONGEST_ALIAS = 100
_ALIASES = 8
"""Aliases of nvm that refer to one another: more are a circle."""
_LOCALE = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"
USUAL_RUNTIME = "/run/user"


def named_variables(text: bytes, candidates: "Collection[str]") -> set[str] | None:
    """The variables that the configuration can use; None if uncertain. `candidates` are set."""
    if b"\0" in text or any(escape in text or escape.lower() in text.lower() for escape in _ESCAPED):
        return None
    found = _of_other_clients(text, candidates)
    start = text.find(b"${")
    while start >= 0:
        end = text.find(b"}", start)
        reference = text[start + 2 : end]
        if end < 0 or b"\\" in reference or len(reference) > 4096:
            return None
        found |= _names(reference.decode("utf-8", "replace"))
        start = text.find(b"${", start + 2)
    lists = _passed_lists(text)
    if lists is None or any(key in text for key in _BY_NAME):
        found |= {word for word in _words(text) if word in candidates}
    for names in lists or ():
        found |= _words(names)
    if b"telemetry" in text:
        found |= {name for name in candidates if name.startswith("OTEL_")}
    return found


def _of_other_clients(text: bytes, candidates: "Collection[str]") -> set[str]:
    """Variables written as `$VAR`, `%VAR%` or `{env:VAR}`."""
    starts = [part.removeprefix(b"{") for part in text.split(b"$")[1:]]
    starts += text.split(b"{env:")[1:]
    words = {part.translate(_WORD).split(b" ", 1)[0] for part in starts}
    words |= {part for part in text.split(b"%")[1:-1] if part == part.translate(_WORD)}
    return {word.decode() for word in words} & set(candidates)


def _words(text: bytes) -> set[str]:
    return {word.decode() for word in text.translate(_WORD).split()}


def _passed_lists(text: bytes) -> list[bytes] | None:
    """The lists under `pass_env`; None for another form, such as an alias."""
    lists: list[bytes] = []
    for part in text.split(_PASSED)[1:]:
        if part[:1].translate(_WORD).strip():
            continue  # another word, which begins like this one
        after = part.lstrip(b"\"' \t\r\n")
        value = after[1:].lstrip(b" \t")
        if after[:1] not in (b":", b"="):
            return None
        if value.startswith(b"["):
            names, end, _ = value.partition(b"]")
        else:
            head, end, rows = value.partition(b"\n")
            names = b"" if head.partition(b"#")[0].strip() else b"-" + _items(rows)
        if not end or not names or b"\\" in names:
            return None
        lists.append(names)
    return lists


def _items(rows: bytes) -> bytes:
    """The lines of a YAML block list, up to the first other line."""
    items: list[bytes] = []
    for row in rows.split(b"\n"):
        if row.strip() and row.lstrip()[:1] not in (b"-", b"#"):
            break
        items.append(row)
    return b"\n".join(items)


def _names(reference: str) -> set[str]:
    """`VAR`, `env:VAR`, `VAR:-default`, and the variable of `input:name`."""
    if reference.startswith("client."):  # a folder of the client, which does not tell hubs apart
        return set()
    name = reference.removeprefix("input:")
    if name != reference:
        return {"".join(char if char.isalnum() or char == "_" else "_" for char in name.upper())}
    return {reference.removeprefix("env:").partition(":-")[0]}


def written_mode(text: bytes) -> str | None:
    """The `hub.attach` of the text; empty without one, None if uncertain."""
    modes: set[str] = set()
    for line in text.split(b"\n") if b"attach" in text else ():
        start = -1 if line.lstrip().startswith(b"#") else line.find(b"attach")
        while start >= 0:
            before, after = line[:start], line[start + len(b"attach") :]
            if _is_key(before, after):
                value = _first_word(after.lstrip(b"\"' \t").removeprefix(b":"))
                if before.strip(b" \t{\"',") not in (b"", b"hub:", b'hub":') or value not in _MODES:
                    return None
                modes.add(value.decode())
            start = line.find(b"attach", start + 1)
    return None if len(modes) > 1 else "".join(modes)


def _is_key(before: bytes, after: bytes) -> bool:
    return before[-1:] in _BEFORE_KEY and after.lstrip(b"\"' \t\r")[:1] in (b"", b":", b"=")


def _first_word(text: bytes) -> bytes:
    return text.translate(_NO_MARKS).split(b" ", 1)[0] if (text := text.lstrip(b" \t\"'")) else b""


def reaching(env: "Mapping[str, str]") -> dict[str, str]:
    """The variables of `REACH` that are set and not empty.

    Lower-case npm names count, except in programs that npm runs.
    """
    names = REACH if any(name in env for name in _NPM_RUNS) else {*REACH, *(f"npm_config_{name}" for name in _BY_NPM)}
    return {name: value for name, value in env.items() if value and (name in names or _is_index(name))}


def _is_index(name: str) -> bool:
    return name.startswith(REACH_PREFIX) and not any(word in name.upper() for word in _CREDENTIAL)


def scope_values(env: "Mapping[str, str]", names: "Collection[str]") -> dict[str, str]:
    """The variables that tell hubs apart, normalized; the configuration names `names`."""
    values = {name: "1" for name in _SWITCHES if env.get(name) == "1"}
    values |= {name: env[name] for name in (_HOME, *names) if name in env}
    if os.path.isabs(values.get(_HOME, "")):
        values[_HOME] = os.path.sep + os.path.normpath(values[_HOME]).lstrip(os.path.sep)
    return {**values, **reaching(env), _STATE: state_folder(env)}


def hub_environment(env: "Mapping[str, str]", names: "Collection[str]") -> dict[str, str]:
    """The environment of a background hub, whose configuration names `names`.

    User, shell and locale are the account's.
    """
    hub = {**_account(env), "LANG": _LOCALE}
    if (runtime := runtime_folder(env)) is not None:
        hub[_RUNTIME] = runtime
        if os.path.exists(os.path.join(runtime, "bus")):
            hub[_BUS] = f"unix:path={runtime}/bus"
    if env.get(_BUS):
        hub[_BUS] = env[_BUS]
    hub |= scope_values(env, names)
    hub["PATH"] = _search_path(env)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if os.path.basename(root) not in ("site-packages", "dist-packages"):  # run from its source
        hub["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [hub.get("PYTHONPATH")])])
    return hub


def _search_path(env: "Mapping[str, str]") -> str:
    home = env.get(_HOME, "")
    usual = [folder for folder in home_places(home) if _is_private(folder)] if os.path.isabs(home) else []
    usual += [folder for folder in _SYSTEM_PATH if os.path.isdir(folder)]
    usual += [folder for folder in SYSTEM_PLACES if _is_private(folder)]
    of_client = os.pathsep.join([*moved_places(env), env.get("PATH", "")])
    return os.pathsep.join(dict.fromkeys([*usual, *shared_folders(of_client)]))


def shared_folders(path: str) -> list[str]:
    """The folders of a client's PATH that are safe for other clients' servers.

    Left out: missing and relative ones, `node_modules`, virtual environments, those that others own or write.
    """
    folders = (entry.rstrip(os.sep) for entry in path.split(os.pathsep) if os.path.isabs(entry))
    return [folder for folder in dict.fromkeys(folders) if folder in _SYSTEM_PATH or _is_for_all_users(folder)]


def _is_for_all_users(folder: str) -> bool:
    real = os.path.realpath(folder)
    if any("node_modules" in path.split(os.sep) for path in (folder, real)):
        return False
    return not any(_is_environment(os.path.dirname(path)) for path in (folder, real)) and _is_private(real)


def _is_environment(folder: str) -> bool:
    if os.path.exists(os.path.join(folder, "conda-meta")):
        return not os.path.exists(os.path.join(folder, "condabin"))
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _is_private(folder: str) -> bool:
    """Whether the folder is the user's or root's, and not everybody can replace it."""
    real = os.path.realpath(folder)
    try:
        status = os.stat(real)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, user()) or status.st_mode & stat.S_IWOTH:
            return False
        while real != os.path.dirname(real):
            real = os.path.dirname(real)
            mode = os.stat(real).st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                return False
    except OSError:
        return False
    return True


def home_places(home: str) -> list[str]:
    """Folders of `HOME_PLACES` and nvm; they need not exist."""
    places = [os.path.join(home, name) for name in HOME_PLACES]
    return places + [folder for nvm in NVM_PLACES for folder in _node_of_nvm(os.path.join(home, nvm))]


def moved_places(env: "Mapping[str, str]") -> list[str]:
    """Folders of version managers that variables moved; they need not exist."""
    places = []
    for name, below in MOVED_PLACES.items():
        roots = (root.rstrip(os.sep) for root in env.get(name, "").split(os.pathsep) if os.path.isabs(root))
        places += [os.path.join(root, place) if place else root for root in roots for place in below]
    return places + (_node_of_nvm(env[_NVM_DIR]) if os.path.isabs(env.get(_NVM_DIR, "")) else [])


def _node_of_nvm(nvm: str) -> list[str]:
    """nvm's default version, else the newest."""
    import glob  # where a hub is started or a program searched, not in every client

    folders = sorted(glob.glob(os.path.join(glob.escape(nvm), NVM_VERSIONS, "*", "bin")), key=_version)
    default = _nvm_default(os.path.join(nvm, "alias"))
    if default is None:
        return []
    chosen = [folder for folder in folders if default and _version(folder)[: len(default)] == default]
    return (chosen or folders)[-1:]


def _nvm_default(aliases: str) -> tuple[int, ...] | None:
    """The alias `default`, such as (18,); None for the system's version."""
    import re

    name = "default"
    for _ in range(_ALIASES):
        try:
            with open(os.path.join(aliases, *name.split("/")), encoding="utf-8", errors="replace") as file:
                name = file.read(_LONGEST_ALIAS).strip()
        except (OSError, ValueError):
            break
    if name == "system":
        return None
    return _version(f"{name}/bin") if re.fullmatch(r"v?\d+(\.\d+){0,2}", name) else ()


def _version(folder: str) -> tuple[int, ...]:
    import re

    return tuple(int(part) for part in re.findall(r"\d+", os.path.basename(os.path.dirname(folder))))


def _account(env: "Mapping[str, str]") -> dict[str, str]:
    if (entry := account(user())) is None:
        return {name: env[name] for name in ("USER", "LOGNAME", "SHELL") if name in env}
    return {"USER": entry[0], "LOGNAME": entry[0], "SHELL": entry[2] or "/bin/sh"}


def runtime_folder(env: "Mapping[str, str]") -> str | None:
    """`$XDG_RUNTIME_DIR`, else its usual path if it exists."""
    folder = env.get(_RUNTIME)
    if folder is None and sys.platform == "linux":
        folder = f"{USUAL_RUNTIME}/{user()}"
        return folder if os.path.isdir(folder) else None
    return folder or None


CI = "this is CI"
CONTAINER = "this is a container"


def why_not(env: "Mapping[str, str]") -> str | None:
    """The reason why `auto` does not attach, such as a container."""
    if user() is None:
        return "background hubs are not available on Windows"
    if env.get("CI", "").lower() not in ("", "0", "false"):
        return CI
    if "container" in env or "KUBERNETES_SERVICE_HOST" in env:
        return CONTAINER
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return CONTAINER
    return None
