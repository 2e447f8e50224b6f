"""Long results: cut, stored, and read back by the hub's tool `read_result`.

Mistakes in a call of the tool are results.
"""

import sys
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.calls.results import paging
from mcp_hub.calls.results.truncate import DENSE, LEAST, Estimate, cut, head_within
from mcp_hub.clock import Clock
from mcp_hub.errors import InvalidParams, RpcError, StoreError
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.stores.documents import Documents
from mcp_hub.types import RawJson, plural

log = get_logger(__name__)

READ_RESULT: Final = "read_result"

_NOTICE: Final = 128
"""Tokens for a page's notes."""
_PER_TOKEN: Final = 16
"""Bytes read per token."""
_SECONDS: Final = 5.0
"""For a pattern or path."""
_SEARCHES: Final = 2
"""Searches at a time, each up to some hundred megabytes."""
_AT_ONCE: Final = 64 << 10
"""Bytes of a result that is cut without a thread."""
_MATCHES: Final = 50
_SHOWN: Final = 60
"""Characters of an argument repeated."""
_REASON: Final = 200
"""Characters of a reason."""
_MOST: Final = 1 << 53

_Number = int | float | str | None


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    offset: _Number = None
    limit: _Number = None
    grep: str | None = None
    path: str | None = None


_decode = msgspec.json.Decoder(_Wanted).decode


class LongResults:
    """Shortens results, and reads them back. One that cannot be stored stays whole.

    `estimate` runs in threads, `clock` bounds searches.
    """

    def __init__(self, documents: Documents, estimate: Estimate, clock: Clock) -> None:
        self._documents = documents
        self._estimate = estimate
        self._clock = clock
        self._searches = anyio.CapacityLimiter(_SEARCHES)
        self._short_searches = anyio.CapacityLimiter(_SEARCHES)

    async def fitted(self, shows_output: Callable[[str], bool] | None, call: Call, completed: Completed) -> Completed:
        """The result, projected by the call's path, within its token limit. Structured content stays, unless
        `shows_output` denies that its schema is shown.
        """
        if call.path is not None:
            completed = await self._projected(call, call.path, completed)
        if not call.result_tokens:
            return completed
        may_drop = shows_output is not None and not shows_output(exported_name(call))
        result = await self.shortened(
            call.principal, completed.result, call.result_tokens, may_drop_structured=may_drop
        )
        return completed if result is completed.result else Completed(result, completed.era)

    async def _projected(self, call: Call, path: str, completed: Completed) -> Completed:
        from mcp_hub.calls.results.projection import projected  # loads JSONPath, as above

        limiter = self._short_searches if len(completed.result) <= _AT_ONCE else self._searches
        run = partial(projected, completed.result, path, self._until_late())
        projection = await anyio.to_thread.run_sync(run, limiter=limiter, abandon_on_cancel=True)
        if projection is None or isinstance(projection, bytes):
            return completed if projection is None else Completed(projection, completed.era)
        is_kept = True
        try:
            for body in projection.documents:
                await self._documents.put(call.principal, body)
        except StoreError as problem:
            log.warning("whole_result_not_kept", size=len(completed.result), reason=str(problem))
            is_kept = False
        result = projection.encoded(is_kept=is_kept, is_told=call.result_tokens > 0)
        return Completed(result, completed.era)

    def _until_late(self) -> Callable[[], bool]:
        """Whether the time for a pattern or path is over; it begins with the first question."""
        until: list[float] = []

        def is_over() -> bool:
            until.extend(() if until else (self._clock.now() + _SECONDS,))
            return self._clock.now() > until[0]

        return is_over

    async def shortened(
        self, principal: str, result: RawJson, limit: int, *, may_drop_structured: bool = False
    ) -> RawJson:
        """The result in at most `limit` tokens of text; the same object if it fits or cannot be stored."""
        if len(result) <= max(limit, LEAST):
            return result
        run = partial(cut, result, limit, self._estimate, may_drop_structured=may_drop_structured)
        shortened = run() if len(result) <= _AT_ONCE else await anyio.to_thread.run_sync(run)
        if shortened is None:
            return result
        try:
            for document in shortened.documents:
                await self._documents.put(principal, document.body)
        except StoreError as problem:
            log.warning("result_not_cut", size=len(result), reason=str(problem))
            return result
        return shortened.result

    def handler(self, limit: int) -> CallHandler:
        """The handler of `read_result`, whose answers have at most `limit` tokens."""
        return partial(self._answered, max(limit, LEAST) - _NOTICE)

    async def _answered(self, tokens: int, call: Call, channel: CallChannel) -> Completed:
        try:
            arguments = _arguments(call)
            offset, limit = _number("offset", arguments.offset, 0), _number("limit", arguments.limit, 1)
            if arguments.grep is None and arguments.path is None:
                return await self._paged(call.principal, arguments.id, offset or 0, limit, tokens)
            return await self._searched(call.principal, arguments, offset or 0, limit, tokens)
        except InvalidParams as problem:
            text = f"{READ_RESULT}: {problem}"
            return Completed.of(text[: head_within(text, tokens, self._estimate)], is_error=True)

    async def _paged(self, principal: str, id_: str, offset: int, limit: int | None, tokens: int) -> Completed:
        at = max(offset - paging.MARGIN, 0)
        size = min(limit or _MOST, tokens * _PER_TOKEN) + 2 * DENSE
        data, total = await self._read(principal, id_, at, size)
        _check_offset(offset, total)
        page = partial(paging.page, data, at, offset, limit, tokens, self._estimate)
        return _page(*await anyio.to_thread.run_sync(page), total)

    async def _searched(
        self, principal: str, arguments: _Wanted, offset: int, limit: int | None, tokens: int
    ) -> Completed:
        data, _ = await self._read(principal, arguments.id, 0, sys.maxsize)
        search = partial(self._search, data, arguments, offset, limit, tokens)
        return await anyio.to_thread.run_sync(search, limiter=self._searches, abandon_on_cancel=True)

    async def _read(self, principal: str, id_: str, offset: int, size: int) -> tuple[bytes, int]:
        try:
            part = await self._documents.read(principal, id_, offset, size)
        except StoreError as problem:
            raise RpcError(f"the result cannot be read now: {problem.public}") from None
        if part is None:
            raise InvalidParams(
                f"{hide_head(id_, _SHOWN)!r} is not found: it has expired, or never existed. "
                "Call the tool that it came from again for a fresh one."
            )
        return part

    # -- in a thread

    def _search(self, body: bytes, arguments: _Wanted, offset: int, limit: int | None, tokens: int) -> Completed:
        is_over = self._until_late()
        prefix = ""
        if arguments.path is not None:
            from mcp_hub.selection.engine import select  # a tenth of a second, which most hubs do without

            selected = select(body, arguments.path, is_over)
            if not selected.values:
                return Completed.of(f"[path {hide_head(arguments.path, _SHOWN)!r}: {selected.reason}]")
            body, prefix = b"\n".join(selected.values), f"{plural(len(selected.values), 'value')}, one a line; "
        _check_offset(offset, len(body))
        if arguments.grep is None:
            return _page(*paging.page(body, 0, offset, limit, tokens, self._estimate), len(body), prefix)
        match_limit = min(limit or _MATCHES, paging.MOST_MATCHES)
        matches = paging.grep(body, arguments.grep, offset, match_limit, tokens, self._estimate, is_over)
        return _matches(matches, offset, prefix)


def _arguments(call: Call) -> _Wanted:
    try:
        return _decode(call.params.get("arguments", b"{}"))
    except (msgspec.DecodeError, RecursionError) as problem:
        reason = hide_head(str(problem), _REASON)
        raise InvalidParams(f"wrong arguments: {reason}. Known arguments: id, offset, limit, grep, path.") from None


def _number(name: str, value: _Number, least: int) -> int | None:
    """Models write numbers as text. Raises `InvalidParams`."""
    if value is None:
        return None
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        raise InvalidParams(
            f"wrong arguments: `{name}` is a whole number from {least} on, not {hide_head(text, _SHOWN)!r}"
        )
    return int(text)


def _check_offset(offset: int, size: int) -> None:
    if offset > size:
        raise InvalidParams(f"offset {offset} is behind the end: there are {size} bytes")


def _page(text: str, start: int, end: int, size: int, prefix: str = "") -> Completed:
    after = f"next: offset={end}" if end < size else "this is the end"
    return Completed.of(text, f"[{prefix}bytes {start} to {end} of {size}; {after}]")


def _matches(matches: paging.Matches, offset: int, prefix: str) -> Completed:
    lines, further, is_slow = matches
    summary = (
        f"{len(lines)} {'match' if len(lines) == 1 else 'matches'} as line:offset: text" if lines else "nothing matches"
    )
    since = f" from offset {offset} on" if offset else ""
    if further is None:
        after = "this is all"
    else:
        after = f"{'not searched to the end in time' if is_slow else 'there may be more'}: offset={further}"
    notice = f"[{prefix}{summary}{since}; {after}]"
    return Completed.of("\n".join(lines), notice) if lines else Completed.of(notice)
