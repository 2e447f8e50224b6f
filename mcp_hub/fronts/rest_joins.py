"""Which call a REST request is: a new one, or one that the same caller has made before.

A key stands for one request of its principal; it is kept with the call's stream, so it holds for every hub on the same
store and after a restart. Without a key only a call that still runs is joined, of a tool that the configuration says
may be called twice without harm. Source: streams.md §3.
"""

import json
import re
from hashlib import sha256
from typing import Final

from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.stream import Stream
from mcp_hub.calls.writer import StreamWriter
from mcp_hub.errors import Busy
from mcp_hub.fronts.rest_problem import Problem
from mcp_hub.hub import Facade
from mcp_hub.stores.base import KeyTaken, StreamRow
from mcp_hub.types import RawJson

__all__ = ["begun", "check_key", "digest_of", "earlier", "running", "settled"]

_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")


def check_key(key: str) -> None:
    """Raises `Problem` for an idempotency key that is none."""
    if not _KEY.fullmatch(key):
        raise Problem(400, "invalid_idempotency_key", "Idempotency-Key has to be 1 to 255 characters of ASCII")


def digest_of(name: str, arguments: RawJson) -> str:
    """Stands for the tool and its arguments by content: white space and the order of members do not count.

    Numbers count as they are written. `arguments` is valid JSON. Raises `Problem` if it is nested too deep.
    """
    try:
        value = json.loads(bytes(arguments), parse_int=_Number, parse_float=_Number, object_pairs_hook=_members)
        text = repr([name, value])
    except RecursionError:
        raise Problem(400, "invalid_json", "the arguments are nested too deep") from None
    return sha256(text.encode()).hexdigest()


class _Number(str):
    """A number as it is written, which no text looks like."""

    def __repr__(self) -> str:
        return str(self)


def _members(pairs: list[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    """An object, which no array looks like: the last of equal names counts."""
    return tuple(sorted(dict(pairs).items(), key=lambda pair: pair[0]))


async def earlier(hub: Facade, principal: str, key: str, digest: str) -> Stream | None:
    """The stream of the call that has this key already. Raises `Problem` if it was another request, `StoreError`."""
    row: StreamRow | None = None
    writer = hub.streams.running(principal, key=key)
    if writer is None:
        row = await hub.streams.store.find_key(principal, key)
        writer = hub.streams.running(principal, key=key)  # it may have begun while the store was asked
    if writer is not None:
        _check(writer.stream.row, digest)
        return await settled(hub, writer)
    return None if row is None else await _joined(hub, row, digest)


async def _joined(hub: Facade, row: StreamRow, digest: str) -> Stream:
    _check(row, digest)
    return await hub.streams.open(row.principal, row.id)


def _check(row: StreamRow, digest: str) -> None:
    if row.digest != digest:
        raise Problem(422, "idempotency_key_reused", "this Idempotency-Key was used for another request")


def running(hub: Facade, principal: str, digest: str) -> StreamWriter | None:
    """An equal call that runs, if it may be joined without being asked to."""
    writer = hub.streams.running(principal, digest=digest)
    if writer is None or writer.record.stopping is not None or writer.record.log.ended:
        return None
    return writer if hub.rules(writer.record).idempotent else None


def begun(hub: Facade, record: CallRecord, key: str | None, digest: str) -> StreamWriter:
    """Makes a call that has just been started durable, and lets it go on whatever becomes of its client.

    Raises `Busy`, and then nothing of the call is left.
    """
    try:
        return hub.streams.detach(record, key=key, digest=digest)
    except Busy:
        hub.cancel(record, "too many calls without a client")
        raise


async def settled(hub: Facade, writer: StreamWriter) -> Stream:
    """The stream of a call once the store has it; that of another hub which was sooner with the same key.

    Raises `Problem`, `StoreError`.
    """
    await hub.streams.settled(writer)
    if writer.error is None:
        return writer.stream
    row = writer.stream.row
    if isinstance(writer.error, KeyTaken) and row.key is not None:
        sooner = await hub.streams.store.find_key(row.principal, row.key)
        if sooner is not None:
            return await _joined(hub, sooner, row.digest)
    raise writer.error
