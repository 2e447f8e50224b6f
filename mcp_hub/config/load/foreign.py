"""Recognizes other clients' files: client, project, and the servers' place.

The key that holds the servers decides; for YAML, forms of other clients. Takes data of any shape.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import product
from pathlib import Path, PurePath
from typing import Final, Literal

import msgspec

from mcp_hub.config.findings import DataPath, Findings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.globs import late
from mcp_hub.types import JsonObject

_HOLDERS: Final[tuple[DataPath, ...]] = (
    ("context_servers",),  # Zed
    ("mcp_servers",),  # Codex
    ("mcp.servers",),  # settings of VS Code
    ("amp.mcpServers",),
    ("mcp", "servers"),  # settings of VS Code, OpenCode
    ("customizations", "vscode", "mcp", "servers"),  # devcontainer.json
    ("settings", "mcp", "servers"),  # *.code-workspace of VS Code
    ("augment.advanced", "mcpServers"),
    ("mcp",),  # OpenCode
)
_ANY_HOLDER: Final = late(r"(?:mcp|context)?[-_. ]?servers?", re.IGNORECASE)
_INPUTS: Final[tuple[DataPath, ...]] = (("inputs",), ("mcp", "inputs"), ("mcp.inputs",))
_VS_CODE: Final = "mcp.json"
_USERS_FOLDERS: Final = (
    *("XDG_CONFIG_HOME", "APPDATA", "LOCALAPPDATA", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME", "CLINE_DIR"),
    "CLINE_DATA_DIR",
)
"""Variables that name folders of user files."""
_SYSTEM: Final = frozenset(("Library", "AppData"))
_OF_CLIENT: Final = late(r"\.[a-z][a-z0-9_-]*")
"""A client's folder in a project: `.vscode`, `.cursor`."""
SOURCES: Final = ("command", "cmd", "url", "uri", "serverUrl", "httpUrl")
_BUILT_IN: Final = frozenset(("builtin", "platform", "frontend", "inline_python"))
DOUBLED: Final = "duplicate key. Remove one of them."


_BOUND: Final = late(
    r"(?:^|[/@_-])(?:mcp-server-git|server-git|git-mcp(?:-server)?|mcp-git|task-master(?:-ai|-mcp)?|repomix|"
    r"ast-grep(?:-mcp)?|semgrep(?:-mcp)?|nx-mcp|eslint|biome|backlog)(?:$|[@=<>~.])",
    re.IGNORECASE,
)
"""Servers that work on their start folder, unless an argument is an absolute path."""
_ELSEWHERE: Final = late(r"[/~$]|[A-Za-z]:[\\/]")


def works_where_started(command: object, args: object) -> bool:
    """Whether the server works on its start folder, and no argument names another."""
    words = [str(word) for word in (command, *(args if isinstance(args, list) else ()))]
    values = (word.rpartition("=")[2] for word in words[1:])
    return any(map(_BOUND.search, words)) and not any(map(_ELSEWHERE.match, values))


class _Conventions(msgspec.Struct, frozen=True):
    """The ways in which a client writes its files.

    `files`: a pattern of the ends of their paths; empty: known by form only. `times`: the unit of `timeout`; empty:
    1000 and more are milliseconds. `notation`: placeholders beside `${…}`. `in_arguments`: those that the client itself
    fills in in arguments, `${env:NAME}` or `${NAME}`. `has_files`: `${file:PATH}` is the file's text.
    """

    files: str = ""
    times: Literal["", "s", "ms"] = ""
    notation: Literal["", "$NAME", "{env:NAME}", "${{env.NAME}}"] = ""
    in_arguments: Literal["", "env", "names"] = ""
    is_editor: bool = False
    has_files: bool = False


CONVENTIONS: Final[Mapping[str, _Conventions]] = {
    "vscode": _Conventions(
        r"\.vscode/mcp\.json|User/(profiles/[^/]+/)?mcp\.json|User/settings\.json|\.vscode/settings\.json"
        r"|devcontainer\.json|[^/]+\.code-workspace",
        in_arguments="env",
        is_editor=True,
    ),
    **dict.fromkeys(
        ("vscode-insiders", "vscodium", "vscode-server", "vscode-flatpak", "vscodium-flatpak"),
        _Conventions(in_arguments="env", is_editor=True),
    ),
    "cursor": _Conventions(r"\.cursor/mcp\.json", in_arguments="env"),
    "claude-code": _Conventions(r"\.mcp\.json|\.claude\.json|managed-mcp\.json", times="ms", in_arguments="names"),
    "claude-desktop": _Conventions(r"claude_desktop_config\.json"),
    "gemini": _Conventions(
        r"\.gemini/settings\.json|gemini-extension\.json", times="ms", notation="$NAME", in_arguments="names"
    ),
    "qwen": _Conventions(r"\.qwen/settings\.json", times="ms", notation="$NAME", in_arguments="names"),
    "codex": _Conventions(r"\.codex/config\.toml", times="s"),
    "opencode": _Conventions(r"opencode\.jsonc?", times="ms", notation="{env:NAME}"),
    "cline": _Conventions(r"cline_mcp_settings\.json", times="s", in_arguments="env"),
    "kilo": _Conventions(
        r"\.kilocode/mcp\.json|kilocode\.kilo-code/settings/mcp_settings\.json", times="s", in_arguments="env"
    ),
    "roo": _Conventions(r"\.roo/mcp\.json|mcp_settings\.json", times="s", in_arguments="env"),
    "kiro": _Conventions(r"\.kiro/settings/mcp\.json|amazonq/(mcp|agents/default)\.json", times="ms"),
    "zed": _Conventions(r"\.zed/settings\.json|zed/settings\.json", times="s"),
    "antigravity": _Conventions(r"\.gemini/(antigravity|config)/mcp_config\.json"),
    "devin": _Conventions(r"mcp_config(\.local)?\.json", in_arguments="env", has_files=True),
    "copilot": _Conventions(r"mcp-config\.json|\.github/mcp\.json", times="ms", in_arguments="names"),
    "continue": _Conventions(r"\.continue/.*\.(ya?ml|json)", times="ms", notation="${{env.NAME}}"),
    "goose": _Conventions(r"goose/config\.yaml|goose/config/config\.yaml", times="s"),
    "librechat": _Conventions(r"librechat[^/]*\.ya?ml", times="ms", in_arguments="names"),
    "vibe": _Conventions(r"\.vibe/config\.toml", times="s"),
    "amp": _Conventions(r"amp/settings\.json|\.amp/settings\.json", in_arguments="names"),
    "junie": _Conventions(r"\.junie/mcp/mcp\.json"),
    "factory": _Conventions(r"\.factory/mcp\.json", in_arguments="names"),
    **dict.fromkeys(("lm-studio", "warp", "jetbrains-ai", "kimi", "pi"), _Conventions()),
}
"""By client, in the order in which the patterns are tried."""
_NO_CONVENTIONS: Final = _Conventions()


class ForeignFile(msgspec.Struct, frozen=True):
    """A file of another client. `client`: its name in the client table, or empty. `project`: the folder of its project,
    or None. `is_users`: surely the user's own file.
    """

    file: Path
    client: str = ""
    project: Path | None = None
    is_users: bool = False

    @property
    def base(self) -> Path:
        return self.file.absolute().parent if self.project is None else self.project


def origin_of(
    file: Path, data: object, env: Mapping[str, str], client: str = "", *, is_users: bool = False
) -> ForeignFile:
    """The file's client and project; pass `client` and `is_users` if known."""
    path = file.absolute()
    name = client or client_of(path, data)
    folder = _project_of(path)
    project = None if is_users or _is_outside_projects(path, folder, env) else folder
    return ForeignFile(path, name, project, is_users)


def conventions_of(client: str) -> _Conventions:
    """The conventions of a client; of an unknown one, nothing."""
    return CONVENTIONS.get(client, _NO_CONVENTIONS)


def client_of(path: PurePath, data: object) -> str:
    """The client, by path or else by form; empty if unknown."""
    text = path.as_posix()
    for client, conventions in CONVENTIONS.items():
        if conventions.files and re.search(rf"(?:^|/)(?:{conventions.files})$", text):
            return client
    return _client_by_form(data) if isinstance(data, dict) else ""


def _client_by_form(data: Mapping[str, object]) -> str:
    if "context_servers" in data:
        return "zed"
    if "mcp_servers" in data:
        return "vibe" if isinstance(data["mcp_servers"], list) else "codex"
    if "opencode.ai" in str(data.get("$schema")) or _has(data.get("mcp"), {"local", "remote"}):
        return "opencode"
    if "mcp.servers" in data or "servers" in data and "mcpServers" not in data or isinstance(data.get("mcp"), dict):
        return "vscode"
    if isinstance(data.get("mcpServers"), list):
        return "continue"
    if "mcpServers" not in data and isinstance(data.get("extensions"), dict):
        return "goose"
    return ""


def _has(servers: object, kinds: Collection[str]) -> bool:
    listed = servers.values() if isinstance(servers, dict) else ()
    return any(isinstance(server, dict) and str(server.get("type")) in kinds for server in listed)


def _project_of(path: Path) -> Path:
    for folder in path.parents:
        if folder.name in ("settings", "mcp"):  # .kiro/settings, .junie/mcp
            continue
        return folder.parent if _OF_CLIENT.fullmatch(folder.name) else path.parent
    return path.parent


def _is_outside_projects(path: Path, folder: Path, env: Mapping[str, str]) -> bool:
    """Whether the file is among user files, or right in the home folder."""
    home = env.get("HOME") or env.get("USERPROFILE")
    homes = {Path(home), _real(Path(home))} if home else set()
    if any(above.is_relative_to(folder) or above.is_relative_to(_real(folder)) for above in homes):
        return True
    places = [Path(env[name]) for name in _USERS_FOLDERS if env.get(name)]
    if folder != path.parent or path.name == ".mcp.json" and path.parent.parent not in homes:
        return path.parent in places
    if any(path.is_relative_to(outer) for outer in places):
        return True
    for above, each in product(homes, {path, _real(path)}):
        parts = each.relative_to(above).parts if each.is_relative_to(above) else ()
        if len(parts) > 1 and (parts[0].startswith(".") or parts[0] in _SYSTEM):
            return True
    return False


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return path


def place_of_servers(data: Mapping[str, object], *, is_yaml: bool) -> DataPath:
    """The path of the servers' mapping; empty if it is the whole file."""
    if data.get("mcpServers", ()) is not None and "mcpServers" in data:
        return ("mcpServers",)
    if is_yaml:
        return ("extensions",) if _is_goose(data) else ("servers",)
    for path in _HOLDERS if "hub" not in data else ():
        section = at(data, path)
        if isinstance(section, list) or isinstance(section, dict) and (len(path) == 1 or not is_server(section)):
            return path
    is_bare = not Settings.model_fields.keys() & data.keys() and any(map(is_server, data.values()))
    return () if is_bare else ("servers",)


def may_hold_servers(key: str) -> bool:
    """Whether people mean a mapping of servers by this key, however they spell it."""
    return _ANY_HOLDER.fullmatch(key) is not None


def is_foreign(data: Mapping[str, object], name: str, *, is_yaml: bool) -> bool:
    """Whether the file belongs to another client."""
    if "hub" in data:
        return False
    if is_yaml:
        is_theirs = client_of(PurePath(name), None) in ("librechat", "continue") and "mcpServers" in data
        return is_theirs or isinstance(data.get("mcpServers"), list) or _is_goose(data)
    is_vs_code = "servers" in data and ("inputs" in data or Path(name).name == _VS_CODE)
    return is_vs_code or place_of_servers(data, is_yaml=False) != ("servers",)


def _is_goose(data: Mapping[str, object]) -> bool:
    extensions = data.get("extensions")
    is_ours = bool(Settings.model_fields.keys() & data.keys())
    return not is_ours and isinstance(extensions, dict) and any(map(is_server, extensions.values()))


def sections(data: JsonObject, path: DataPath, report: Findings) -> JsonObject:
    """The top level with keys of `Settings`; the servers at `path` come under `servers`."""
    if path == ("servers",):
        return {key: value for key, value in data.items() if key != "$schema"}
    servers = at(data, path)
    tree = {key: value for key, value in data.items() if path and key not in ("$schema", path[0])}
    report.read_at("servers", path)
    if not tree.get("servers", True):
        del tree["servers"]  # it is empty
    if "servers" in tree:
        report.error(path, "conflicting_keys", 'means the same as "servers". Keep one of them.')
        report.written.clear()
        return tree
    if isinstance(servers, list):  # each with its name
        for name in doubled_names(servers):
            report.error(("servers", name), "duplicate_key", DOUBLED)
        servers = {str(server.get("name")): _without_name(server) for server in servers if isinstance(server, dict)}
    elif not path:
        servers = {key: value for key, value in data.items() if key != "$schema"}
    if isinstance(servers, dict):
        servers = {name: server for name, server in servers.items() if not is_built_in(server)}
    return {**tree, "servers": servers}


def doubled_names(servers: list[object]) -> list[str]:
    """Names repeated in a list of servers."""
    named = Counter(str(server.get("name")) for server in servers if isinstance(server, dict))
    return [name for name, number in named.items() if number > 1]


def is_built_in(server: object) -> bool:
    """Whether the entry is part of Goose, not a server."""
    return isinstance(server, dict) and str(server.get("type")) in _BUILT_IN and not is_server(server)


def inputs_of(data: JsonObject) -> Iterator[JsonObject]:
    for path in _INPUTS:
        listed = at(data, path)
        yield from (entry for entry in listed if isinstance(entry, dict)) if isinstance(listed, list) else ()


def at(data: object, path: DataPath) -> object:
    """The value at a path; None if absent."""
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def is_server(value: object) -> bool:
    """Whether the value has the form of a server."""
    return isinstance(value, dict) and any(isinstance(value.get(key), str | list) for key in SOURCES)


def _without_name(server: JsonObject) -> JsonObject:
    return {key: value for key, value in server.items() if key != "name"}
