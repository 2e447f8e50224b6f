"""Calls that have ended, for tests of the history, and a journal that keeps them in a file or in memory."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_hub.call import Call, CallingClient, StreamInfo
from mcp_hub.calls.history.batches import Digest, JournalRules, ToolKeeping
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.metering import outcome_of
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import CallRecord, new_record
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.events import Completed, Ending
from mcp_hub.ids import new_call_id
from mcp_hub.stores.history.base import HistoryLimits, HistoryStore, Keeping
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.history.reading import CallFilter, PastCall, newest, texts_of
from mcp_hub.types import CallId, Era

EVERYTHING = HistoryLimits()


class Lists:
    """The definition of every tool has the digest that `digests` says."""

    def __init__(self) -> None:
        self.digest_now = "d1"

    def __call__(self) -> Digest:
        digest = self.digest_now
        return lambda server, tool: digest


class StreamOfCall:
    """A durable stream that nobody reads."""

    row = StreamInfo(CallId("st_1"), "p", "in_a", "a", "tools/call", "echo", 0.0, 0.0)


def past_call(
    tool: str = "echo", arguments: object = None, ending: Ending | None = None, principal: str = "p", server: str = "a",
    raw: bytes | None = None, method: str = "tools/call",
    session: str = "s", client: CallingClient | None = None, *, is_running: bool = False,
) -> CallRecord:  # fmt: skip
    """The record of a call that has ended, or of one that `is_running`."""
    key = "uri" if method == "resources/read" else "name"
    params = {key: msgspec.Raw(msgspec.json.encode(tool))}
    if arguments is not None or raw is not None:
        params["arguments"] = msgspec.Raw(msgspec.json.encode(arguments) if raw is None else raw)
    call = Call(new_call_id(), server, method, params, {}, session, principal, Era.MODERN, {}, client=client)
    record = new_record(call, cast("Any", None), TimeLimits(1, 1), SystemClock())
    record.log.begin()
    if is_running:
        record.stream = cast("Any", StreamOfCall())
    else:
        record.log.append(ending or Completed(b'{"content":[]}'))
    return record


def history_file(
    folder: Path | None, hub: str = "in_a", is_gone: Callable[[str], bool] = lambda hub: False
) -> HistoryFile:
    return HistoryFile(folder, hub, is_gone, wall_time, SystemClock())


def new_journal(
    store: HistoryStore, keeping: Keeping = "full", limits: HistoryLimits = EVERYTHING, hub: str = "in_a",
    of_tool: Callable[[str, str], ToolKeeping] = lambda server, tool: ToolKeeping(), lists: Lists | None = None,
) -> CallJournal:  # fmt: skip
    rules = JournalRules(keeping, limits, of_tool)
    journal = CallJournal(store, hub, lambda: rules, lists or Lists(), lambda: b"k" * 32, SystemClock())
    journal.use()
    return journal


async def keep(journal: CallJournal, *records: CallRecord) -> None:
    """Ends these calls and writes them."""
    end(journal, records)
    await journal.flush()


def end(journal: CallJournal, records: Iterable[CallRecord]) -> None:
    for record in records:
        journal.ended(record, outcome_of(record.log.ending), SystemClock().now())


async def kept(store: HistoryStore, most: int = 10_000, **chosen: Any) -> list[PastCall]:
    """The calls in the store, the oldest first."""
    return (await newest(store, CallFilter(chosen.pop("fits", lambda group: True), **chosen), most))[::-1]


async def arguments_in(store: HistoryStore) -> list[str]:
    """Of all calls, the oldest first."""
    return [arguments for arguments, _ in await texts_of(store, await kept(store))]
