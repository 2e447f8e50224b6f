"""Records of running hubs in the state folder; each hub locks its own.

Records that others could write are ignored.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub import __version__
from mcp_hub.app.limits import state_dir
from mcp_hub.attach.folder import HTTP_SOCKET, make_folder
from mcp_hub.attach.system import NO_LINK, NO_WAIT
from mcp_hub.clock import wall_time
from mcp_hub.config.trust import problem_of_config
from mcp_hub.logs import get_logger
from mcp_hub.stores.locks import is_at, lock_file, remove, take

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
        """The URL of its MCP endpoint, empty for a hub of one client."""
        return self.url or (ON_SOCKET if self.folder else "")

    @property
    def socket(self) -> str | None:
        """The socket of that URL, None for the network."""
        return os.path.join(self.folder, HTTP_SOCKET) if self.folder else None


ON_SOCKET: Final = "http://localhost/mcp"


def dashboard_address(url: str, operator: str = "") -> str:
    """The URL of the dashboard; the token is in the fragment, which is not sent."""
    page = url.removesuffix("mcp")
    return f"{page}#token={operator}" if operator else page


@contextmanager
def recorded(
    config: str, url: str, env: Mapping[str, str], client: str = "", operator: str = "", folder: str = "",
    *, has_dashboard: bool = True, alone: str = "",
) -> Iterator[None]:  # fmt: skip
    """Keeps the record of this hub during the block."""
    path = _folder(env) / f"{_key(config)}-{os.getpid()}.json"
    file = None
    try:
        make_folder(path.parent)
        file = _locked(path)
        os.ftruncate(file, 0)
        fields = (url, os.getpid(), wall_time(), __version__, client, operator, folder, has_dashboard, config)
        record = HubRecord(*fields, alone[:_LONGEST])
        os.write(file, msgspec.json.encode(record))
    except OSError as problem:  # the hub serves anyway, and commands do not find it
        log.warning("hub_not_recorded", path=str(path), reason=problem.strerror or str(problem))
    try:
        yield
    finally:
        if file is not None:
            remove(path)
            os.close(file)


def running_hub(config: str, env: Mapping[str, str], *, over_http: bool = False) -> HubRecord | None:
    """The hub that commands ask: over HTTP, else the youngest background hub."""
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
                    hubs.append((started.st_mtime, msgspec.json.decode(os.read(file, _LARGEST), type=HubRecord)))
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
