"""The file of streams of one process over time: in use, out of use, set aside and made anew.

A file that is full, locked or not writable stays open, for reading and for a try now and then; one that is so from the
start is opened for reading alone until it can be opened as usual. A damaged one stays open for reading until it can be
set aside, once no hub writes to it any more; the new one gets what can be read of it. Each change is logged once.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from mcp_hub.clock import Clock
from mcp_hub.logs import get_logger
from mcp_hub.stores.faults import StoreFault, faulty
from mcp_hub.stores.instances import Instances
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.sqlite.quarantine import Tenancy, identity, set_aside
from mcp_hub.stores.sqlite.salvage import Salvaged, salvage
from mcp_hub.stores.sqlite.store import FILE, SqliteStore

_SALVAGE: Final = 3.0
"""Seconds for copying out of a damaged file: other hubs wait for as long to open the new one."""
FIRST: Final = 5.0
"""Seconds after the first failure; twice as long after each further one."""
MOST: Final = 300.0
"""Seconds between two tries at most; a file that has worked for as long starts from the beginning."""

log = get_logger(__name__)


class Retry:
    """When a file that could not be used may be tried again; `now` is of the caller's clock."""

    def __init__(self) -> None:
        self._delay = FIRST
        self._due = 0.0
        self._worked: float | None = None
        self._is_trying = False
        self.is_out = False
        """Whether the file is out of use."""

    def failed(self, now: float) -> bool:
        """Whether that is news. Of many that fail together the first one counts."""
        if self.is_out and not self._is_trying:
            return False
        if self._worked is not None and now - self._worked >= MOST:
            self._delay = FIRST
        is_news, self.is_out = not self.is_out, True
        self._is_trying = False
        self._worked = None
        self._due = now + self._delay
        self._delay = min(self._delay * 2, MOST)
        return is_news

    def take(self, now: float) -> bool:
        """Whether to try now; True for one caller only, until the next time is due."""
        if not self.is_out or now < self._due:
            return False
        self._is_trying = True
        self._due = now + self._delay
        return True

    def worked(self, now: float) -> bool:
        """The file can be used again; whether that is news."""
        is_news, self.is_out = self.is_out, False
        self._is_trying = False
        if is_news or self._worked is None:
            self._worked = now
        return is_news


class Recovery:
    """`store` is what can be read, if anything; what can be written is for `for_writing` to say."""

    def __init__(self, folder: Path, limits: StoreLimits, clock: Clock, instances: Instances) -> None:
        self._folder = folder
        self._limits = limits
        self._path = folder / FILE
        self._clock = clock
        self._instances = instances
        self._retry = Retry()
        self._is_damaged = False
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
        """Whether the file is open for writing, too."""
        return self.store is not None and not self.store.is_read_only

    def for_writing(self) -> SqliteStore | None:
        """The file, if it is fit or worth a try; who is given it says `worked` or `failed`."""
        if self.is_fit or (self._is_whole and not self._is_damaged and self._retry.take(self._clock.now())):
            return self.store
        return None

    def worked(self) -> None:
        """Something was committed."""
        if not self._is_damaged and self._retry.worked(self._clock.now()):
            log.warning("store_recovered", store=str(self._path))

    def failed(self, fault: StoreFault) -> None:
        """The file could not be used."""
        self._is_damaged = self._is_damaged or fault.fault == "corrupt"
        if self._retry.failed(self._clock.now()):
            log.error("store_failed", store=str(self._path), fault=fault.fault, reason=str(fault), durable=False)

    def failed_reading(self, fault: StoreFault) -> None:
        """Something could not be read; unless the file is damaged, only writing says what it is worth."""
        if fault.fault == "corrupt":
            self.failed(fault)
        else:
            log.debug("store_unreadable", store=str(self._path), fault=fault.fault, reason=str(fault))

    async def open(self) -> None:
        """Opens the file, or a new one in its place. Never raises for the file's sake: see `is_fit`."""
        try:
            self.store = await self._opened()
        except StoreFault as fault:
            self.failed(fault)
            await self._open_to_read(fault)

    async def recover(self, leave: Callable[[], None]) -> None:
        """If the file is gone or damaged and it is time to: opens one again. `leave` is called before it changes."""
        is_needed = (not self._is_whole or self._is_damaged) and not self._is_recovering
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
        if old is not None and not old.is_read_only:
            await old.retire()
            leave()
            if not await self._set_aside(old.identity):
                raise StoreFault("corrupt", f"store {self._path}: is damaged, and another hub uses it")
        self.store, self._is_damaged = await self._opened(), False
        self.worked()
        if old is not None:
            await old.close()

    async def _opened(self) -> SqliteStore:
        """An open file; a damaged one is set aside first. Raises `StoreFault`."""
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
        """Opens the file for reading alone, unless it is damaged; none is open, or it stays."""
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
        """Whether the damaged file `seen` is out of the way."""
        return await anyio.to_thread.run_sync(self._try_set_aside, seen)

    def _try_set_aside(self, seen: tuple[int, int] | None) -> bool:
        try:
            with Tenancy(self._path).alone() as is_alone:
                if identity(self._path) != seen:
                    return True  # another hub was quicker
                if not is_alone:
                    return False
                aside = set_aside(self._path)
                saved = self._salvage(aside)
        except OSError as error:
            log.error("store_not_set_aside", store=str(self._path), reason=str(error))
            return False
        found = {"kept": saved.kept, "lost": saved.lost, "all_found": saved.is_all}
        log.error("store_set_aside", store=str(self._path), file=str(aside), **found)
        return True

    def _salvage(self, aside: Path) -> Salvaged:
        until = self._clock.now() + _SALVAGE
        try:
            return salvage(aside, self._path, lambda: self._clock.now() >= until)
        except (sqlite3.Error, StoreFault) as error:
            log.error("store_not_salvaged", store=str(self._path), file=str(aside), reason=str(error))
            return Salvaged(is_all=False)
