"""Past calls on a Redis or Valkey server, shared by replicas; its memory is a further limit."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio.to_thread
import msgspec

from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.history.base import (
    MOST_LOSSES,
    NO_CHANGE,
    Batch,
    BatchKey,
    CallTexts,
    HistoryLimits,
    LostCalls,
    RunningChange,
    batch_of,
    encode,
    is_shown,
    is_sound_key,
    is_sound_loss,
    texts_of_body,
)
from mcp_hub.stores.redis.leases import StoreLinks
from mcp_hub.stores.redis.link import Command, script
from mcp_hub.stores.redis.records import pairs
from mcp_hub.stores.redis.scripts import KEEP_BATCH

T = TypeVar("T")
_PRUNE: Final = 10.0
"""Seconds between two looks of a replica at what is too old or too much."""
_AT_ONCE: Final = 256
"""Batches that are removed at once."""

log = get_logger(__name__)


class _Summary(msgspec.Struct, array_like=True):
    """A batch's times, calls, bytes and indexes of texts."""

    first: float
    last: float
    calls: int
    size: int = 0
    texts: list[int] = []

    def key(self, field: str) -> BatchKey:
        hub, _, base = field.partition(" ")
        return BatchKey(hub=hub, base=int(base), first=self.first, last=self.last, calls=self.calls)


_FIELD: Final = re.compile(r"\S+ [0-9]{1,18}")
_encode_loss = msgspec.json.Encoder().encode
_decode_loss = msgspec.json.Decoder(LostCalls).decode
_decode_summary = msgspec.msgpack.Decoder(_Summary).decode


class RedisHistory:
    """A `HistoryStore` on a store's links; `now` returns Unix seconds."""

    def __init__(self, links: StoreLinks, now: Callable[[], float]) -> None:
        self._keys = links.keys.history
        self._writer = links.writer
        self._reader = links.reader
        self._leases = links.leases
        self._instance = links.instance
        self._now = now
        self.location = links.name
        """The URL, without a password."""
        self._open: tuple[str, _Summary] | None = None
        """The batch that was written last."""
        self._pruned = 0.0

    async def write(
        self, batch: Batch, fresh: int, texts: bytes, losses: Sequence[LostCalls], limits: HistoryLimits,
        running: RunningChange = NO_CHANGE,
    ) -> bool:  # fmt: skip
        changes = await self._changes(running)
        is_written = not fresh or await self._put(batch, fresh, texts, changes)
        if is_written:
            noted: list[Command] = [("HSET", self._keys.runs, self._instance, repr(self._now()))]
            await self._writer.ask(*([] if fresh else changes), *noted, *self._listed(losses))
            await self._prune(limits)
        return is_written

    async def _put(self, batch: Batch, fresh: int, texts: bytes, changes: Sequence[Command]) -> bool:
        """Writes a batch, and `changes` together with it: a replica that is killed leaves no call twice."""
        key, start, head = batch.key, len(batch) - fresh, encode(batch)
        field = _field(key)
        before = self._open[1] if self._open is not None and self._open[0] == field else _Summary(0.0, 0.0, 0)
        if texts:
            await self._writer.ask(("HSET", self._keys.texts, f"{field} {start}", texts))
        size = before.size + len(texts)
        summary = _Summary(
            first=key.first,
            last=key.last,
            calls=key.calls,
            size=size,
            texts=[*before.texts, start] if texts else before.texts,
        )
        whole = msgspec.structs.replace(summary, size=size + len(head))
        keys = [self._keys.batches, self._keys.heads]
        kept_batch = script(KEEP_BATCH, keys, field, int(start > 0), encode(whole), head)
        is_kept = (await self._writer.ask(kept_batch, *changes))[0]
        if not is_kept:
            await self._writer.ask(("HDEL", self._keys.texts, f"{field} {start}"))
            return False
        self._open = field, summary
        return True

    async def _changes(self, running: RunningChange) -> list[Command]:
        """Store begun calls, and remove ended ones of any replica."""
        begun, ended = running
        bases = {*ended, *(batch.base for batch, _ in begun)}
        if not bases:
            return []
        [fields] = await self._writer.ask(("HKEYS", self._keys.batches))
        removed = {
            text: _Summary(0.0, 0.0, 0, texts=[0])
            for text in (field.decode("ascii", "replace") for field in fields)
            if _FIELD.fullmatch(text) and int(text.partition(" ")[2]) in bases
        }
        commands = self._removed(removed)
        for batch, texts in begun:
            key, head = batch.key, encode(batch)
            field, size = _field(key), len(texts) + len(head)
            commands.append(("HSET", self._keys.texts, f"{field} 0", texts))
            commands.append(("HSET", self._keys.heads, field, head))
            summary = _Summary(key.first, key.last, key.calls, size=size, texts=[0])
            commands.append(("HSET", self._keys.batches, field, encode(summary)))
        return commands

    def _listed(self, losses: Sequence[LostCalls]) -> list[Command]:
        commands: list[Command] = [("LPUSH", self._keys.losses, _encode_loss(loss)) for loss in losses]
        return [*commands, ("LTRIM", self._keys.losses, 0, MOST_LOSSES - 1)] if commands else []

    async def _prune(self, limits: HistoryLimits) -> None:
        now = self._now()
        if now < self._pruned + _PRUNE:
            return
        self._pruned = now
        batches = {
            field: batch
            for field, batch in (await self._summaries()).items()
            if self._is_past(batch.key(field)) or batch.last < now - limits.keep
        }
        calls, size = sum(batch.calls for batch in batches.values()), sum(batch.size for batch in batches.values())
        gone: list[str] = []
        for field, batch in sorted(batches.items(), key=lambda item: item[1].last)[:_AT_ONCE]:
            has_room = size <= limits.size or batch.calls == calls  # the newest calls stay, however large
            if batch.last >= now - limits.keep and calls - batch.calls < limits.calls and has_room:
                break
            gone.append(field)
            calls, size = calls - batch.calls, size - batch.size
        lasts = int((limits.keep + limits.span) * 1000)
        every = [*self._keys, self._keys.heads, self._keys.texts, self._keys.runs, self._keys.losses]
        removed = self._removed({field: batches[field] for field in gone})
        await self._writer.ask(*removed, *(("PEXPIRE", key, lasts) for key in every))
        for loss in await self._killed():
            await self._writer.ask(("HDEL", self._keys.runs, loss.hub), *self._listed([loss]))

    def _removed(self, batches: dict[str, _Summary]) -> list[Command]:
        if not batches:
            return []
        texts = [f"{field} {start}" for field, batch in batches.items() for start in batch.texts]
        commands: list[Command] = [("HDEL", self._keys.batches, *batches), ("HDEL", self._keys.heads, *batches)]
        return [*commands, ("HDEL", self._keys.texts, *texts)] if texts else commands

    async def _summaries(self) -> dict[str, _Summary]:
        [reply] = await self._reader.ask(("HGETALL", self._keys.batches))
        summaries = {field.decode("ascii", "replace"): _summary_of(value) for field, value in pairs(reply).items()}
        return {
            field: summary for field, summary in summaries.items() if summary is not None and _is_sound(field, summary)
        }

    async def index(self) -> list[BatchKey]:
        keys = [batch.key(field) for field, batch in (await self._summaries()).items()]
        return [*filter(self._is_past, keys)]

    def _is_past(self, key: BatchKey) -> bool:
        return is_shown(key, partial(self._has_ended, at=key.last))

    def _has_ended(self, replica: str, at: float) -> bool:
        is_known = self._now() - at > 2 * self._leases.seconds
        return is_known and replica != self._instance and self._leases.is_trusted and self._leases.is_gone(replica)

    async def scan(self, keys: Sequence[BatchKey], extract: Callable[[Batch], T]) -> list[T]:
        if not keys:
            return []
        [heads] = await self._reader.ask(("HMGET", self._keys.heads, *map(_field, keys)))
        return await anyio.to_thread.run_sync(_extracted, heads, extract)

    async def texts(self, key: BatchKey, indexes: Sequence[int]) -> dict[int, CallTexts]:
        field = _field(key)
        [value] = await self._reader.ask(("HGET", self._keys.batches, field))
        summary = _summary_of(value)
        starts = [] if summary is None else sorted(summary.texts)
        text_starts = sorted(
            {max((start for start in starts if start <= index), default=-1) for index in indexes} - {-1}
        )
        if not text_starts:
            return {}
        [bodies] = await self._reader.ask(("HMGET", self._keys.texts, *(f"{field} {start}" for start in text_starts)))
        return {
            start + number: texts
            for start, body in zip(text_starts, bodies, strict=True)
            for number, texts in enumerate(texts_of_body(body, key.calls - start))
        }

    async def losses(self) -> list[LostCalls]:
        [lines] = await self._reader.ask(("LRANGE", self._keys.losses, 0, MOST_LOSSES))
        losses = await self._killed()
        for line in lines:
            with suppress(ValueError):
                losses.append(_decode_loss(line))
        losses = [loss for loss in losses if is_sound_loss(loss)]
        return sorted(losses, key=lambda loss: -loss.at)

    async def _killed(self) -> list[LostCalls]:
        [runs] = await self._reader.ask(("HGETALL", self._keys.runs))
        losses = []
        for replica, written in pairs(runs).items():
            hub, at = replica.decode("ascii", "replace"), _seconds(written)
            if self._has_ended(hub, at):
                losses.append(LostCalls("killed", at, hub))
        return losses

    async def clear(self, loss: LostCalls) -> int:
        count = sum(key.calls for key in await self.index())
        keys = self._keys
        await self._writer.ask(("DEL", keys.batches, keys.heads, keys.texts, keys.losses), *self._listed([loss]))
        self._open = None
        return count

    async def close(self, *, is_complete: bool = True) -> None:
        if not is_complete:
            return
        try:
            await self._writer.ask(("HDEL", self._keys.runs, self._instance))
        except StoreError as error:
            log.debug("history_not_closed", place=self.location, reason=str(error))


def _is_sound(field: str, summary: _Summary) -> bool:
    return _FIELD.fullmatch(field) is not None and summary.size >= 0 and is_sound_key(summary.key(field))


def _extracted(heads: Sequence[object], extract: Callable[[Batch], T]) -> list[T]:
    return [extract(batch) for head in heads if (batch := batch_of(head)) is not None]


def _field(key: BatchKey) -> str:
    return f"{key.hub} {key.base}"


def _summary_of(value: object) -> _Summary | None:
    try:
        return _decode_summary(value) if isinstance(value, bytes) else None
    except ValueError:
        return None


def _seconds(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
