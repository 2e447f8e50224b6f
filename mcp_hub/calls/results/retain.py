"""Cuts long results (`truncate`) and keeps what was cut (`stores.documents`), so that it can be read."""

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
"""Bytes of a result that is looked at where it is: a thread for it would take longer."""


class Retention:
    """Makes short results that stand for long ones. A result that cannot be kept is passed on whole.

    `estimate` must be safe to call in a thread.
    """

    def __init__(self, documents: Documents, estimate: Estimate) -> None:
        self._documents = documents
        self._estimate = estimate

    async def fitted(self, shows_output: Callable[[str], bool] | None, call: Call, completed: Completed) -> Completed:
        """The result that stands for that of the call: at most the tokens that the call asks for.

        Structured content is left alone unless `shows_output` says of the name called that no schema is shown of it.
        """
        may_drop = shows_output is not None and not shows_output(exported_name(call))
        result = await self.shortened(
            call.principal, completed.result, call.result_tokens, may_drop_structured=may_drop
        )
        return completed if result is completed.result else Completed(result, completed.era)

    async def shortened(
        self, principal: str, result: RawJson, limit: int, *, may_drop_structured: bool = False
    ) -> RawJson:
        """The result in at most `limit` tokens of text (`truncate.cut`), its cut texts kept for the principal.

        The very same object if it fits or cannot be kept. Always the same bytes for the same result and limit.
        """
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
    """Keeps cut results, and reads them on."""

    keeping: Retention
    reading: ReadResult
