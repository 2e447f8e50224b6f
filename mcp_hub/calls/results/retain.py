"""Truncates long results and stores the rest."""

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.calls.results.read_result import ReadResult
from mcp_hub.calls.results.truncate import LEAST, Estimate, cut
from mcp_hub.errors import StoreError
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.stores.documents.base import Documents
from mcp_hub.types import RawJson

log = get_logger(__name__)

_AT_ONCE: Final = 64 << 10
"""Bytes of a result that is cut without a thread."""


class Retention:
    """Shortens results; one that cannot be stored stays whole. `estimate` runs in threads."""

    def __init__(self, documents: Documents, estimate: Estimate) -> None:
        self._documents = documents
        self._estimate = estimate

    async def fitted(self, shows_output: Callable[[str], bool] | None, call: Call, completed: Completed) -> Completed:
        """The result within the call's token limit. Structured content stays, unless `shows_output` denies that its
        schema is shown.
        """
        may_drop = shows_output is not None and not shows_output(exported_name(call))
        result = await self.shortened(
            call.principal, completed.result, call.result_tokens, may_drop_structured=may_drop
        )
        return completed if result is completed.result else Completed(result, completed.era)

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


class LongResults(msgspec.Struct, frozen=True):
    """Stores and reads cut results."""

    keeping: Retention
    reading: ReadResult
