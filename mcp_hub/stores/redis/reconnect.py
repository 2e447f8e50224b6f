"""The server of streams over time: it answers, it does not, it answers again. Each change is logged once."""

from collections.abc import Callable

from mcp_hub.logs import get_logger
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.redis.store import RedisStore

log = get_logger(__name__)


class Reconnect:
    """A `recovery.failsafe.Backing`: after a fault the server is out of use until this replica's lease is renewed."""

    def __init__(self, store: RedisStore) -> None:
        self.file = store
        self._beats: int | None = None
        """The beats that had been heard when it failed; None while the server is in use."""
        self._run = ""

    @property
    def is_fit(self) -> bool:
        return self._beats is None

    @property
    def is_settled(self) -> bool:
        return self.file.is_settled

    def for_writing(self) -> RedisStore | None:
        return self.file if self.is_fit else None

    def worked(self) -> None:
        """Does nothing: an answer may have been on its way when the server failed."""

    def failed(self, fault: StoreFault) -> None:
        is_news, self._beats = self.is_fit, self.file.leases.beats
        self.file.leases.lost()
        if is_news:
            log.error("store_failed", store=self.file.name, fault=fault.fault, reason=str(fault), durable=False)

    def failed_reading(self, fault: StoreFault) -> None:
        if fault.fault != "busy":
            self.failed(fault)

    async def open(self) -> None:
        try:
            await self.file.open()
        except StoreFault as fault:
            self.failed(fault)

    async def recover(self, leave: Callable[[], None]) -> None:
        is_back = self._beats is not None and self.file.leases.beats > self._beats
        if is_back:
            self._beats = None
            log.warning("store_recovered", store=self.file.name)
        run, self._run = self._run, self.file.run
        if is_back or (run and run != self._run):
            leave()

    async def close(self) -> None:
        await self.file.close()
