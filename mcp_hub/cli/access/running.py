"""Running hubs: records in the state folder, each locked by its hub, and requests to background hubs.

Records that others could write are ignored.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub import __version__
from mcp_hub.attach.arguments import VARIABLE
from mcp_hub.attach.folder import HTTP_SOCKET, is_alive, make_folder
from mcp_hub.attach.system import NO_LINK, NO_WAIT
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_place, fail, load_config
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.config.trust import problem_of_config, state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import is_at, lock_file, remove, take

if TYPE_CHECKING:
    from mcp_hub.sessions.clients import HubUse

log = get_logger(__name__)

_LARGEST: Final = 4096
_LONGEST: Final = 1000
"""Characters of a reason in a record."""
_ATTEMPTS: Final = 100
"""Attempts to lock this hub's record while commands read it."""


class HubRecord(msgspec.Struct, frozen=True):
    """A hub: it serves HTTP at `url`, a `client` over stdio, or a background `folder`.

    `started`: Unix seconds. `operator`: its token. `config`: its configuration. `alone`: why it is not in the
    background.
    """

    url: str
    pid: int
    started: float = 0.0
    version: str = ""
    client: str = ""
    operator: str = ""
    folder: str = ""
    has_dashboard: bool = True
    config: str = ""
    alone: str = ""

    @property
    def endpoint(self) -> str:
        """The MCP endpoint, empty for a hub of one client."""
        return self.url or (ON_SOCKET if self.folder else "")

    @property
    def socket(self) -> str | None:
        """The socket of that URL, None for the network."""
        return os.path.join(self.folder, HTTP_SOCKET) if self.folder else None


ON_SOCKET: Final = "http://localhost/mcp"


def dashboard_address(url: str, operator: str = "") -> str:
    """The token is in the fragment, which is not sent."""
    page = url.removesuffix("mcp")
    return f"{page}#token={operator}" if operator else page


@contextmanager
def recorded(
    config: str, url: str, env: Mapping[str, str], client: str = "", operator: str = "", folder: str = "",
    *, has_dashboard: bool = True, alone: str = "",
) -> Iterator[None]:  # fmt: skip
    """Keeps the hub's record during the block."""
    path = _folder(env) / f"{_key(config)}-{os.getpid()}.json"
    file = None
    try:
        make_folder(path.parent)
        file = _locked(path)
        os.ftruncate(file, 0)
        fields = (url, os.getpid(), wall_time(), __version__, client, operator, folder, has_dashboard, config)
        record = HubRecord(*fields, alone[:_LONGEST])
        os.write(file, json.dumps(msgspec.to_builtins(record)).encode())  # also a path that is not UTF-8
    except OSError as problem:  # the hub serves anyway, and commands do not find it
        log.warning("hub_not_recorded", path=str(path), reason=problem.strerror or str(problem))
    try:
        yield
    finally:
        if file is not None:
            remove(path)
            os.close(file)


def running_hub(config: str, env: Mapping[str, str], *, over_http: bool = False) -> HubRecord | None:
    """The hub over HTTP, else the youngest background hub."""
    hubs = [hub for hub in running_hubs(config, env) if hub.url or (hub.endpoint and not over_http)]
    return next((hub for hub in hubs if hub.url), hubs[0] if hubs else None)


def running_hubs(config: str | None, env: Mapping[str, str]) -> list[HubRecord]:
    """The hubs of a configuration, or all for None, youngest first. Removes dead records."""
    hubs: list[tuple[float, HubRecord]] = []
    for path in _folder(env).glob("*.json" if config is None else f"{_key(config)}-*.json"):
        with suppress(OSError, ValueError, RecursionError):  # msgspec's errors are of the second
            file = os.open(path, os.O_RDONLY | NO_WAIT | NO_LINK)
            try:
                started = os.fstat(file)
                if problem_of_config(started, env, path=path) is None and _is_held(file, path):
                    hubs.append((started.st_mtime, msgspec.convert(json.loads(os.read(file, _LARGEST)), HubRecord)))
            finally:
                os.close(file)
    return [hub for _, hub in sorted(hubs, key=lambda pair: pair[0], reverse=True)]


def dead_records(env: Mapping[str, str]) -> list[Path]:
    """The records of killed hubs."""
    records: list[Path] = []
    for path in sorted(_folder(env).glob("*.json")):
        with suppress(OSError):
            file = os.open(path, os.O_RDONLY | NO_WAIT | NO_LINK)
            try:
                if take(file, shared=True):
                    records.append(path)
            finally:
                os.close(file)
    return records


def _is_held(file: int, path: Path) -> bool:
    if not take(file, shared=True):
        return True
    remove(path)
    return path.exists()  # on Windows, where a file that is open cannot be removed


def _locked(path: Path) -> int:
    for _ in range(_ATTEMPTS):
        file = lock_file(path)
        if take(file, shared=False) and is_at(file, path):
            return file
        os.close(file)
    raise OSError(f"{path} is locked by another process")


def _folder(env: Mapping[str, str]) -> Path:
    return state_dir(env) / "hubs"


def _key(config: str) -> str:
    return hashlib.sha256(config.encode(errors="surrogateescape")).hexdigest()[:16]


_PATIENCE: Final = 10.0
"""Seconds for background hubs to end."""
_SHORTEST: Final = 1.0
_LOOK: Final = 0.05


def hub_fields(folder: str, wants: str) -> dict[str, str]:
    """The answer of the hub. Exits with 3."""
    from mcp_hub.attach.join import NotJoined, request  # sockets and locks that Windows does not have

    try:
        return request(folder, wants)
    except NotJoined as problem:
        fail("hub_not_answering", f"The background hub in {folder} does not answer: {problem}.", EXIT_UNAVAILABLE)


def use_of(folder: str) -> "HubUse | None":
    """The use of a background hub; None if it does not say."""
    from mcp_hub.attach.join import NotJoined, request  # not on Windows
    from mcp_hub.sessions.clients import HubUse

    try:
        return msgspec.json.decode(request(folder, "use", _SHORTEST).get("use", ""), type=HubUse)
    except (NotJoined, msgspec.DecodeError):
        return None


def dashboard_of(hub: HubRecord) -> tuple[str, str]:
    """The URL and operator token of the dashboard. Exits with 3."""
    url, operator = hub.url, hub.operator if hub.has_dashboard else ""
    if hub.folder and not url:
        fields = hub_fields(hub.folder, "dashboard")
        url, operator = fields.get("url", ""), fields.get("operator", "")
    if not operator:
        fail("no_dashboard", "The running hub does not have a dashboard (hub.http.dashboard: off).", EXIT_UNAVAILABLE)
    return url, operator


def started_hub(config: str | None, advice: str) -> str:
    """Starts the background hub; returns its folder. Exits with 3 and `advice`."""
    loaded = load_config(config, partly=True)
    why = "this system does not have background hubs" if sys.platform == "win32" else "no option names this file"
    if sys.platform != "win32" and not loaded.needs_name:
        from mcp_hub.attach.join import NotJoined  # sockets and locks that Windows does not have
        from mcp_hub.attach.serve import started_folder

        try:
            folder = started_folder(loaded.place, os.environ.get(VARIABLE) or loaded.settings.hub.attach)
        except NotJoined as problem:
            why = str(problem)
        else:
            say("Started the background hub.")
            return folder
    message = f"No hub serves {loaded.place}, and none was started in the background: {why}. {advice}"
    fail("no_running_hub", message, EXIT_UNAVAILABLE)


def end_hub(folder: str) -> None:
    """Ends a background hub. Exits with 3 after ten seconds."""
    for why in end_folders([folder]).values():
        fail("hub_not_answering", f"The background hub in {folder} has not ended: {why}.", EXIT_UNAVAILABLE)


def end_folders(folders: Sequence[str]) -> dict[str, str]:
    """Ends background hubs in ten seconds; returns the others, with reasons."""
    if not folders:
        return {}
    from mcp_hub.attach.join import NotJoined, request  # sockets, which Windows does not have

    clock = SystemClock()
    until = clock.now() + _PATIENCE
    alive = dict.fromkeys(folders, "it still works")
    for folder in folders:
        try:
            request(folder, "stop", max(until - clock.now(), _SHORTEST))
        except NotJoined as problem:
            alive[folder] = str(problem)
    while True:
        alive = {folder: why for folder, why in alive.items() if os.path.isdir(folder) and is_alive(folder)}
        if not alive or clock.now() >= until:
            return alive
        time.sleep(_LOOK)


def hubs_of(config: str | None) -> tuple[str, list[HubRecord]]:
    """The configuration's path and hubs; without one, all hubs. Raises `ConfigError`."""
    try:
        path = config_place(config)
    except ConfigError as error:
        if error.code != "config_not_found":
            raise
        return "", running_hubs(None, os.environ)
    return path, running_hubs(path, os.environ)


def end_hubs_of(configs: Iterable[str]) -> list[str]:
    """Ends background hubs; returns the configurations that had one. Exits with 3."""
    paths = {os.path.realpath(config) for config in configs}
    hubs = [hub for hub in running_hubs(None, os.environ) if hub.folder and os.path.realpath(hub.config) in paths]
    for folder, why in end_folders([hub.folder for hub in hubs]).items():
        fail("hub_not_answering", f"The background hub in {folder} has not ended: {why}.", EXIT_UNAVAILABLE)
    return list(dict.fromkeys(hub.config for hub in hubs))
