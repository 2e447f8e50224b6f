"""Reloads configuration and overrides in a running hub: watch, read, plan, apply, one at a time.

An invalid file changes nothing. Files are watched by `stat` once a second, in a worker thread because a file system may
hang.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec

from mcp_hub.aio import keep_running
from mcp_hub.clock import wall_time
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.plan import Plan, plan, until_next_start
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import overrides_of
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.logs import get_logger
from mcp_hub.types import FileStamp, UpstreamState, plural

_LOOK: Final = 1.0
"""Seconds between two looks."""
_SETTLED: Final = 0.25
"""Seconds without a change before a file is read."""
_LATEST: Final = 5.0
"""Seconds until a changing file is read anyway."""

log = get_logger(__name__)

_READING: Final = 30.0
"""Seconds to read the file, `${file:…}` included."""
_MOST_FINDINGS: Final = 50
"""Findings reported per file."""
_GIVEN_UP: Final = (UpstreamState.FAILED, UpstreamState.INCOMPATIBLE)


def stamp_of(path: Path) -> FileStamp | None:
    """The stamp of the file's current version; None if `stat` fails."""
    try:
        return FileStamp.of(os.stat(path))
    except OSError:
        return None


async def look(path: Path, stamp: Callable[[Path], FileStamp | None] = stamp_of) -> FileStamp | None:
    """The stamp of the file's current version, from a worker thread."""
    return await anyio.to_thread.run_sync(stamp, path, abandon_on_cancel=True)


async def changed(
    path: Path, before: FileStamp | None, stamp: Callable[[Path], FileStamp | None] = stamp_of
) -> FileStamp | None:
    """Waits until the file's version differs from `before`, and is stable; returns its stamp."""
    while (seen := await look(path, stamp)) == before:  # noqa: ASYNC110 - a file sets no event
        await anyio.sleep(_LOOK)
    with anyio.move_on_after(_LATEST):
        while True:
            await anyio.sleep(_SETTLED)
            earlier, seen = seen, await look(path, stamp)
            if seen == earlier:
                break
    return seen


class _Reload(msgspec.Struct, frozen=True):
    """A reload's outcome. `trigger`: file, signal or request; `at`: Unix seconds.

    With `errors` nothing has changed. `revived`: failed servers that are retried.
    """

    trigger: str
    at: float
    plan: Plan = Plan()
    revived: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def is_applied(self) -> bool:
        return not self.errors


class _Target(Protocol):
    def state(self, server: str) -> UpstreamState: ...

    def apply(self, settings: Settings, change: Plan, restarted: tuple[str, ...]) -> None: ...

    def revive(self, server: str) -> bool: ...


class Reloader:
    """Keeps settings in line with their files; `read` runs in a worker thread.

    `checks` and `prepares` refuse settings by `ConfigError`; a prepare returns a callback for when they hold.
    """

    def __init__(self, loaded: Loaded, read: Callable[[], Loaded], target: _Target) -> None:
        self.settings = loaded.settings
        self.last: _Reload | None = None
        self.applied = 0
        self.failed = 0
        self.checks: list[Callable[[Settings], None]] = []
        self.prepares: list[Callable[[Settings], Callable[[], None]]] = []
        path = Path(loaded.path)
        # of the versions read last: of the file, and of its overrides
        self._stamps = {path: loaded.stamp, overrides_of(path): loaded.overrides_stamp}
        self._read = read
        self._target = target
        self._turn = anyio.Lock()

    @property
    def stamp(self) -> FileStamp | None:
        file, _ = self._stamps
        return self._stamps[file]

    def _note_read(self, stamp: FileStamp | None) -> None:
        file, _ = self._stamps
        self._stamps[file] = stamp

    async def reload(self, trigger: str) -> _Reload:
        """Reads and applies the file; logs the outcome."""
        async with self._turn:
            file, overrides = self._stamps
            stamp = self._stamps[file]
            try:
                with anyio.move_on_after(_READING):
                    stamp = await look(file)
                    self._stamps[overrides] = await look(overrides)
                return self._applied(trigger, stamp, await self._loaded())
            except ConfigError as error:
                return self._refused(trigger, stamp, tuple(map(str, error.findings)))
            except Exception as error:  # the boundary to a file that may hold anything
                log.exception("reload_crashed")
                message = f"internal error: {type(error).__name__}. The log has the details."
                finding = ConfigFinding("internal_error", message)
                return self._refused(trigger, stamp, (str(finding),))

    async def reread(self, server: str) -> bool:
        """Reads a server's secrets again, and replaces it if they changed.

        False: unchanged, or the file itself has changed or is invalid.
        """
        async with self._turn:
            try:
                loaded = await self._loaded()
            except ConfigError:
                return False
            old, fresh = self.settings, loaded.settings
            if loaded.stamp != self.stamp or server not in fresh.servers or server not in old.servers:
                return False
            if fresh.servers[server] == old.servers[server] and fresh.failure(server) == old.failure(server):
                return False
            of_others = {name: old.failure(name) for name in old.servers if name != server}
            causes = {name: cause for name, cause in {**of_others, server: fresh.failure(server)}.items() if cause}
            servers = {**old.servers, server: fresh.servers[server]}
            settings = old.model_copy(update={"servers": servers}).failing(causes)
            self._target.apply(settings, plan(old, settings), (server,))
            self.settings = settings
            log.info("secrets_reread", upstream=server, audit="settings")
            return True

    async def watch(self) -> None:
        """Reloads on file changes while `hub.watch` is set, until cancelled."""
        file, overrides = self._stamps
        if self._stamps[file] is None:
            self._stamps[file] = await look(file)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_running, "configuration", self._watch, file, name="configuration")
            tasks.start_soon(keep_running, "overrides", self._watch, overrides, name="overrides")

    async def _watch(self, file: Path) -> None:
        seen = self._stamps[file]
        while True:
            seen = await changed(file, seen)
            if seen != self._stamps[file] and self.settings.hub.watch:  # nobody else has read it meanwhile
                await self.reload("file")

    async def _loaded(self) -> Loaded:
        with anyio.move_on_after(_READING):
            return await anyio.to_thread.run_sync(self._read, abandon_on_cancel=True)
        message = f"reading the file took more than {_READING:g} s"
        raise ConfigError(ConfigFinding("config_unreadable", message, str(next(iter(self._stamps)))))

    def _applied(self, trigger: str, stamp: FileStamp | None, loaded: Loaded) -> _Reload:
        change = plan(self.settings, loaded.settings)
        settings = until_next_start(self.settings, loaded.settings)
        for check in self.checks:
            check(settings)
        prepared = [prepare(settings) for prepare in self.prepares]
        stays = (*change.unchanged, *change.adjusted)
        revived = tuple(name for name in stays if self._target.state(name) in _GIVEN_UP)
        self._target.apply(settings, change, (*change.added, *change.restarted, *revived))
        revived = tuple(name for name in stays if name in revived or self._target.revive(name))
        self.settings = settings
        self._note_read(loaded.stamp or stamp)
        for put in prepared:
            put()
        for warning in loaded.warnings:
            log.warning("config_warning", code=warning.code, warning=str(warning))
        self.applied += 1
        self.last = _Reload(trigger, wall_time(), change, revived)
        _log(self.last)
        return self.last

    def _refused(self, trigger: str, stamp: FileStamp | None, findings: tuple[str, ...]) -> _Reload:
        self._note_read(stamp)  # not read again before it changes
        if len(findings) > _MOST_FINDINGS:
            findings = (*findings[:_MOST_FINDINGS], f"… and {plural(len(findings) - _MOST_FINDINGS, 'more finding')}")
        self.failed += 1
        self.last = _Reload(trigger, wall_time(), errors=findings)
        log.error(
            "reload_failed", audit="settings", trigger=trigger, findings=list(findings), kept="the settings before"
        )
        return self.last


def _log(outcome: _Reload) -> None:
    change = outcome.plan
    news = {
        "added": change.added,
        "removed": change.removed,
        "restarted": change.restarted,
        "adjusted": change.adjusted,
        "revived": outcome.revived,
        "settings": change.at_once,
    }
    unchanged = len(change.unchanged) - sum(name in change.unchanged for name in outcome.revived)
    log.info(
        "config_reloaded",
        audit="settings",
        trigger=outcome.trigger,
        **{key: list(names) for key, names in news.items() if names},
        kept=unchanged,
    )
    if change.next_start:
        log.warning(
            "reload_incomplete", settings=list(change.next_start), reason="these hold from the hub's next start"
        )
