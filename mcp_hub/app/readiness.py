"""The start of servers: folder and default `scope`, unless configured; waits, and logs the end."""

import hashlib
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import user_folder
from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.flags import Flag, decoded
from mcp_hub.catalog.pins import label_of, subject_of
from mcp_hub.catalog.trust.scan import Inspector, inspected
from mcp_hub.config.load.interpolate import clients_in, fill_client
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.load.secrets import target_of
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.trust import project_of
from mcp_hub.globs import late
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.stores.server_logs import log_file, log_folder
from mcp_hub.types import UpstreamState, UpstreamStatus, has_settled, not_ready, plural
from mcp_hub.upstreams.supervision.server import LONGEST, brief

if TYPE_CHECKING:
    from mcp_hub.hub import HubPort

log = get_logger(__name__)

_MOST: Final = 3
"""Failures named in the summary; it counts the rest."""


def all_settled(hub: "HubPort") -> bool:
    return all(map(has_settled, hub.statuses()))


async def wait_until(hub: "HubPort", is_enough: Callable[[], bool], seconds: float) -> None:
    """Waits until `is_enough`, checked on each change, or for `seconds`."""
    with anyio.move_on_after(seconds):
        while True:
            version = hub.catalog.version
            if is_enough():
                return
            await hub.catalog.wait_changed(version)


def log_sources(loaded: Loaded) -> None:
    """Logs which variables and files another client's servers get, without values."""
    for name, sources in loaded.sources.items():
        server = loaded.settings.servers.get(name)
        if sources and server is not None and server.enabled:
            log.info("values_passed", server=name, values=[*sources], to=target_of(server.command, server.url))


async def log_start(hub: "HubPort", servers: Collection[str]) -> None:
    """Logs once, after all have settled, ready servers and failures."""
    if servers:
        await wait_until(hub, lambda: all_settled(hub), math.inf)
        statuses = [status for status in hub.statuses() if status.server in servers]
        is_fine = all(status.state is UpstreamState.READY or status.rests for status in statuses)
        (log.info if is_fine else log.warning)("servers_settled", summary=summary(statuses))


def summary(statuses: Sequence[UpstreamStatus]) -> str:
    """`3 of 4 servers ready; time failed: …`, at most 200 characters."""
    ready = sum(status.state is UpstreamState.READY for status in statuses)
    resting = sum(status.rests for status in statuses)
    text = f"{ready} of {plural(len(statuses), 'server')} ready" + (f", {resting} when needed" if resting else "")
    failed = not_ready(statuses)
    more = f"; and {len(failed) - _MOST} more failed" if len(failed) > _MOST else ""
    room = (LONGEST - len(text) - len(more)) // max(1, min(len(failed), _MOST))
    for status in failed[:_MOST]:
        text += hide_head(f"; {status.server} failed: {brief(status.reason)}", room, "…")
    return text + more


_BROWSERS: Final = late(
    r"(?:^|[/@\\_-])(?:playwright|puppeteer|chrome-devtools|browser-?mcp|mcp-browser|browserbase|selenium|browser-use)",
    re.IGNORECASE,
)
"""Servers that drive a browser, which two clients cannot share."""
_RELATIVE: Final = late(
    r"\.{1,2}(?:[/\\].*)?|(?:[\w.-]+[/\\])*[\w.-]+\.(?:py|pyz|[cm]?js|[cm]?ts|sh|rb|php|pl|jar|dll)", re.DOTALL
)
"""Arguments relative to the working directory: with dots, or scripts."""
_BOUND: Final = late(r"(?:^|[/@\\_-])serena(?:$|[/@\\_.-])", re.IGNORECASE)
"""Servers that work on the project of their working directory."""


class StartFolders(msgspec.Struct, frozen=True):
    """Start folders of one configuration's servers. `project`: its folder, if a project's root.

    `spare` has servers' own folders, `homes` private homes of sandboxes.
    """

    project: str | None
    spare: Path
    homes: Path = Path(os.devnull)
    config: Path | None = None

    @classmethod
    def of(cls, config: Path, state: Path) -> "StartFolders":
        folder = os.path.dirname(config)
        users = {os.path.expanduser("~"), user_folder("config", os.environ)}
        is_project = folder not in users and os.path.lexists(os.path.join(folder, ".git"))
        spare, homes = (log_folder(state, str(config), kind) for kind in ("folders", "sandboxes"))
        return cls(folder if is_project else None, spare, homes, config)

    def scope(self, server: ServerSettings, *, asks: bool) -> Literal["session", "call", "folder"] | None:
        """The server's processes in a background hub; None: one shared."""
        default = default_scope(server, asks=asks, has_folder=self.project is not None)
        if default == "folder" and server.scope in (None, "shared"):
            return default
        return default if server.scope is None else None if server.scope == "shared" else server.scope

    def start(self, name: str, server: ServerSettings, client: str | None) -> str:
        """The server's start folder for a client in `client`."""
        if client is None:
            return filled(server.cwd, self._spare(name)) if server.cwd else self.project or self._spare(name)
        if server.cwd is not None:
            return filled(server.cwd, client)
        if self.project is not None:
            return self.project
        if places := _named(server):
            return client if "cwd" in places else project_of(client)
        return client if _depends(server) else self._spare(name)

    def fill(self, name: str, server: ServerSettings, client: str | None) -> tuple[list[str], dict[str, str]]:
        """Arguments and variables for that client."""
        folder = client or (self._spare(name) if _named(server) else "")
        return [filled(word, folder) for word in server.args], {
            key: filled(value, folder) for key, value in server.env.items()
        }

    def of_principal(self, principal: str) -> "StartFolders":
        """Folders for the processes of one principal alone."""
        digest = hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        return replace(self, project=None, spare=self.spare / digest, homes=self.homes / digest)

    def home(self, name: str) -> str:
        return str(log_file(self.homes, name).with_suffix(""))

    def is_spare(self, name: str, folder: str) -> bool:
        return folder == str(log_file(self.spare, name).with_suffix(""))

    def _spare(self, name: str) -> str:
        """The server's own folder, else `/`; never the home folder."""
        folder = log_file(self.spare, name).with_suffix("")
        try:
            make_folder(folder)
        except OSError as problem:
            log.warning("folder_not_made", upstream=name, folder=str(folder), reason=problem.strerror)
            return os.path.abspath(os.sep)
        return str(folder)


def working_directory() -> str | None:
    """The hub's working directory, unless removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def folder_key(server: ServerSettings, client: str | None) -> str:
    """Equal for clients with equal `${client.…}` values."""
    if client is None:
        return ""
    return client if "cwd" in _named(server) else project_of(client)


def filled(text: str, client: str) -> str:
    """The text with `${client.cwd}` and `${client.root}` filled in."""
    return fill_client(text, lambda name: client if name == "cwd" else project_of(client))


def names_client(server: ServerSettings) -> bool:
    return bool(_named(server))


def _named(server: ServerSettings) -> set[str]:
    texts = [server.cwd or "", *server.args, *server.env.values()]
    return {name for text in texts for name in clients_in(text)}


def default_scope(
    server: ServerSettings, *, asks: bool, has_folder: bool = False
) -> Literal["session", "folder"] | None:
    """`session` for browsers, arguments that depend on the working directory, and servers that ask (in the handshake
    era they do not say whom); `folder` with `${client.cwd}` or `${client.root}`.

    `has_folder`: the configuration sets the start folder.
    """
    if server.command is None:
        return None
    if asks and server.era != "modern":
        return "session"
    if any(_BROWSERS.search(word) for word in [server.command, *server.args]):
        return "session"
    if _named(server):
        return "folder"
    return "session" if _depends(server) and server.cwd is None and not has_folder else None


def _depends(server: ServerSettings) -> bool:
    values = (word.rpartition("=")[2] for word in server.args)
    words = [server.command or "", *server.args]
    return any(_RELATIVE.fullmatch(value) for value in values) or any(_BOUND.search(word) for word in words)


def is_to_separate(status: UpstreamStatus, server: ServerSettings) -> bool:
    """Whether a shared server just asked, and now needs a process per client."""
    return status.asks and not status.scope and server.scope is None and default_scope(server, asks=True) is not None


_PAUSE: Final = 1.0  # seconds before each search: first lists and calls are not delayed, many changes are one
_MOST_LOGGED: Final = 1000  # flags that one hub logs; `mcp-hub doctor` shows those of now


async def log_flags(catalog: Catalog, upstreams: Mapping[str, Upstream]) -> None:
    """Searches all texts after each change, in a thread, until cancelled or `_MOST_LOGGED` are logged."""
    inspector = Inspector()
    logged: set[Flag] = set()
    await catalog.settled()
    while len(logged) < _MOST_LOGGED:
        await anyio.sleep(_PAUSE)
        version = catalog.version
        try:
            texts = inspected(catalog.view(None), upstreams)
            flags = await anyio.to_thread.run_sync(inspector.inspect, *texts, abandon_on_cancel=True)
        except Exception:  # the next change may be readable
            log.exception("flags_not_searched")
            flags = []
        for flag in flags:
            if flag not in logged and len(logged) < _MOST_LOGGED:
                logged.add(flag)
                is_tool = subject_of(flag.tool)[0] == "tool"
                tool = decoded(flag.exported if is_tool else label_of(flag.tool))
                details = {"kind": flag.kind, "where": decoded(flag.where, 200), "why": flag.why, "text": flag.text}
                log.warning("tool_flagged", upstream=flag.server, tool=tool, **details)
        await catalog.wait_changed(version)
