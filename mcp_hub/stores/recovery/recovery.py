"""The file of streams over time: in use, failing, set aside, replaced, moved.

A full, locked or read-only file stays open for reading and retries. A damaged one is set aside once no hub writes to
it.

If the file or its log (`-wal`) is deleted or replaced, SQLite continues with the open ones, which no other process
sees. A moved log is written to the file, once no hub writes to it. If the file was moved, the hub copies its own
streams to the present one.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.faults import Fault, StoreFault, faulty
from mcp_hub.stores.locks import Instances
from mcp_hub.stores.sqlite.quarantine import Tenancy, identity, salvage, set_aside
from mcp_hub.stores.sqlite.store import FILE, SqliteStore

_BREAKS: Final = ("corrupt", "moved")
_SALVAGE: Final = 3.0
"""Seconds to copy from a damaged file; other hubs wait meanwhile."""
FIRST: Final = 5.0
"""Seconds after the first failure; twice as long after each further one."""
_SOON: Final = 0.5
"""Seconds between attempts while other hubs have not noticed yet that the file was moved."""
MOST: Final = 300.0
"""Longest delay in seconds; a file that worked for as long starts with the first delay again."""

log = get_logger(__name__)


class _Retry:
    """Back-off between attempts; `now` is any clock in seconds."""

    def __init__(self) -> None:
        self._delay = FIRST
        self._due = 0.0
        self._worked: float | None = None
        self._is_trying = False
        self.is_out = False
        """Whether the file is out of use."""

    def failed(self, now: float, *, is_moved: bool = False) -> bool:
        """Whether the store worked before. A moved file is tried at once."""
        if self.is_out and not self._is_trying:
            return False
        if self._worked is not None and now - self._worked >= MOST:
            self._delay = FIRST
        is_news, self.is_out = not self.is_out, True
        self._is_trying = False
        self._worked = None
        if is_moved:
            self._due = now if is_news else now + _SOON
            return is_news
        self._due = now + self._delay
        self._delay = min(self._delay * 2, MOST)
        return is_news

    def take(self, now: float) -> bool:
        if not self.is_out or now < self._due:
            return False
        self._is_trying = True
        self._due = now + self._delay
        return True

    def worked(self, now: float) -> bool:
        is_news, self.is_out = self.is_out, False
        self._is_trying = False
        if is_news or self._worked is None:
            self._worked = now
        return is_news


class Recovery:
    """A `Backing` of a file."""

    def __init__(self, folder: Path, limits: StoreLimits, clock: Clock, instances: Instances) -> None:
        self._folder = folder
        self._limits = limits
        self._path = folder / FILE
        self._clock = clock
        self._instances = instances
        self._retry = _Retry()
        self._broken: Fault | None = None
        """`corrupt` or `moved`: opening the file anew is not enough."""
        self._is_recovering = False
        self.store: SqliteStore | None = None

    @property
    def is_settled(self) -> bool:
        return True

    @property
    def is_fit(self) -> bool:
        return self._is_whole and not self._retry.is_out

    @property
    def _is_whole(self) -> bool:
        return self.store is not None and not self.store.is_read_only

    def for_writing(self) -> SqliteStore | None:
        if self.is_fit or (self._is_whole and self._broken is None and self._retry.take(self._clock.now())):
            return self.store
        return None

    def worked(self) -> None:
        if self._broken is None and self._retry.worked(self._clock.now()):
            log.warning("store_recovered", store=str(self._path))

    def failed(self, fault: StoreFault) -> None:
        if self._broken is None and fault.fault in _BREAKS:
            is_moved = isinstance(self.store, SqliteStore) and bool(self.store.moved)  # which looks like damage
            self._broken = "moved" if is_moved else fault.fault
        if self._retry.failed(self._clock.now(), is_moved=self._broken == "moved"):
            log.error("store_failed", store=str(self._path), fault=fault.fault, reason=str(fault), durable=False)

    def failed_reading(self, fault: StoreFault) -> None:
        """Only damage and a moved file count: writes decide otherwise."""
        if fault.fault in _BREAKS:
            self.failed(fault)
        else:
            log.debug("store_unreadable", store=str(self._path), fault=fault.fault, reason=str(fault))

    async def open(self) -> None:
        """Never raises: see `is_fit`."""
        try:
            self.store = await self._opened()
        except StoreFault as fault:
            self.failed(fault)
            await self._open_to_read(fault)

    async def recover(self, leave: Callable[[], None]) -> None:
        is_needed = (not self._is_whole or self._broken is not None) and not self._is_recovering
        if not is_needed or not self._retry.take(self._clock.now()):
            return
        self._is_recovering = True
        try:
            await self._replace(leave)
        except StoreFault as fault:
            self.failed(fault)
            await self._open_to_read(fault)
        finally:
            self._is_recovering = False

    async def close(self) -> None:
        if self.store is not None:
            await self.store.close()
        self._instances.leave()

    async def _replace(self, leave: Callable[[], None]) -> None:
        old = self.store
        if self._broken == "moved" and old is not None:
            await self._mend(old, leave)
            return
        if old is not None and not old.is_read_only:
            await old.retire()
            leave()
            if not await self._set_aside(old.identity):
                raise StoreFault("corrupt", f"store {self._path}: is damaged, and another hub uses it")
        self.store, self._broken = await self._opened(), None
        self.worked()
        if old is not None:
            await old.close()

    async def _mend(self, old: SqliteStore, leave: Callable[[], None]) -> None:
        if FILE in old.moved:
            await old.retire()
            leave()
            old.leave_path()
            new = await self._opened()
            try:
                carried = await old.carry_over()
            except StoreError as error:
                log.error("store_streams_lost", store=str(self._path), reason=str(error))
            else:
                log.warning("store_streams_copied", store=str(self._path), streams=carried)
            self.store = new
            await old.close()
        else:
            try:
                await old.mend()
            except StoreFault as fault:
                self._broken = "corrupt" if fault.fault == "corrupt" else self._broken
                raise
        self._broken = None
        self.worked()

    async def _opened(self) -> SqliteStore:
        try:
            await anyio.to_thread.run_sync(self._instances.enter)
        except OSError as error:
            raise faulty(error, self._path) from error
        file = self._new_store()
        try:
            await file.open()
        except StoreFault as fault:
            if fault.fault != "corrupt" or not await self._set_aside(file.identity):
                raise
            file = self._new_store()
            await file.open()
        return file

    async def _open_to_read(self, fault: StoreFault) -> None:
        if self.store is not None or fault.fault == "corrupt":
            return
        file = self._new_store(is_read_only=True)
        try:
            await file.open()
        except StoreFault as problem:
            self.failed_reading(problem)
        else:
            self.store = file

    def _new_store(self, *, is_read_only: bool = False) -> SqliteStore:
        return SqliteStore(self._folder, self._limits, self._clock, self._instances, is_read_only=is_read_only)

    async def _set_aside(self, seen: tuple[int, int] | None) -> bool:
        return await anyio.to_thread.run_sync(self._try_set_aside, seen)

    def _try_set_aside(self, seen: tuple[int, int] | None) -> bool:
        try:
            with Tenancy(self._path).alone() as is_alone:
                if identity(self._path) != seen:
                    return True  # another hub was quicker
                if not is_alone:
                    return False
                aside = set_aside(self._path)
                copied, unreadable, is_all = self._salvage(aside)
        except OSError as error:
            log.error("store_not_set_aside", store=str(self._path), reason=str(error))
            return False
        counts = {"kept": copied, "lost": unreadable, "all_found": is_all}
        log.error("store_set_aside", store=str(self._path), file=str(aside), **counts)
        return True

    def _salvage(self, aside: Path) -> tuple[int, int, bool]:
        until = self._clock.now() + _SALVAGE
        try:
            return salvage(aside, self._path, lambda: self._clock.now() >= until)
        except (sqlite3.Error, StoreFault) as error:
            log.error("store_not_salvaged", store=str(self._path), file=str(aside), reason=str(error))
            return 0, 0, False
