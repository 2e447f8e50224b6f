"""Executors, their calls, and the offers for their workers."""

from collections import OrderedDict, deque
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, Question
from mcp_hub.clock import Clock
from mcp_hub.errors import RpcError, method_not_found
from mcp_hub.events import Completed, InputRequired
from mcp_hub.types import RawJson, RawObject
from mcp_hub.upstreams.executors.posts import Production


class CallOffer(msgspec.Struct, frozen=True, tag_field="type", tag="call", rename={"meta": "_meta"}):
    """A call for the worker, which may post `credit` events."""

    tool_call_id: str
    name: str
    arguments: msgspec.Raw
    meta: RawObject
    credit: int


class _CancelOffer(msgspec.Struct, frozen=True, tag_field="type", tag="cancel"):
    """A fetched call ended without the worker."""

    tool_call_id: str
    reason: str


class _InputOffer(msgspec.Struct, frozen=True, tag_field="type", tag="input"):
    tool_call_id: str
    key: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


CANCELLED: Final = RpcError("The call was cancelled.")

Offer = CallOffer | _CancelOffer | _InputOffer


class Executor(msgspec.Struct, eq=False):
    """A worker's registration, whose lease ends at `due`. `news` concern `fetched` calls."""

    key: tuple[str, str]
    epoch: int = 0
    tools: dict[str, bytes] = {}
    lease: float = 0.0
    due: float = 0.0
    waiting: OrderedDict[str, "Work"] = msgspec.field(default_factory=OrderedDict)
    fetched: dict[str, "Work"] = {}
    news: deque[_CancelOffer | _InputOffer] = msgspec.field(default_factory=deque)
    bell: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def register(self, epoch: int, tools: dict[str, bytes], lease: float, now: float) -> None:
        """Starts a new epoch: drops the news and wakes waiting requests."""
        self.epoch, self.tools, self.lease = epoch, tools, lease
        self.news.clear()
        self.renew(now)
        self.ring()

    def renew(self, now: float) -> None:
        self.due = now + self.lease

    def ring(self) -> None:
        """Wakes every request that waits for offers."""
        self.bell.set()
        self.bell = anyio.Event()

    def add(self, work: "Work") -> None:
        self.waiting[work.offer.tool_call_id] = work
        self.ring()

    def announce(self, news: _InputOffer) -> None:
        self.news.append(news)
        self.ring()

    def release(self, work: "Work", reason: str | None) -> bool:
        """Drops a call, with a cancellation if it has a `reason`. Whether it was fetched."""
        id_ = work.offer.tool_call_id
        self.waiting.pop(id_, None)
        if self.fetched.pop(id_, None) is None:
            return False
        self.news = deque(offer for offer in self.news if offer.tool_call_id != id_)
        if reason is not None:
            self.news.append(_CancelOffer(id_, reason))
        self.ring()
        return True

    def take(self, limit: int, running: int, now: float) -> list[Offer]:
        """The next offers: news first, then calls while fewer than `running` are fetched."""
        offers: list[Offer] = []
        while self.news and len(offers) < limit:
            offer = self.news.popleft()
            if isinstance(offer, _InputOffer):
                self.fetched[offer.tool_call_id].production.answered(offer.key)
            offers.append(offer)
        while self.waiting and len(offers) < limit and len(self.fetched) < running:
            id_, work = self.waiting.popitem(last=False)
            self.fetched[id_] = work
            work.channel.times.end_wait()
            work.heard = now
            offers.append(work.offer)
        return offers


class Work(msgspec.Struct, eq=False):
    """One call. `heard` is the time of the last post, `asking` the number of open questions."""

    executor: Executor
    call: Call
    channel: CallChannel
    offer: CallOffer
    production: Production
    heard: float = 0.0
    asking: int = 0
    outcome: Completed | RpcError = CANCELLED
    finished: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def touch(self, now: float) -> None:
        self.heard = now
        self.executor.renew(now)

    def ask(self, ask: InputRequired, clock: Clock) -> None:
        """Asks the caller, or declines for it. The answer becomes news."""

        def answered(outcome: RawJson | RpcError) -> None:
            self.asking -= 1
            self.heard = clock.now()
            if not self.finished.is_set():
                is_error = isinstance(outcome, RpcError)
                answer = msgspec.Raw(bytes(outcome.encoded() if isinstance(outcome, RpcError) else outcome))
                members = {"error" if is_error else "result": answer}
                self.executor.announce(_InputOffer(self.offer.tool_call_id, ask.key, **members))

        self.asking += 1
        lack = self.call.lack(ask.method, ask.params)
        if lack is None:
            self.channel.ask(Question(ask.method, ask.params, answered))
        else:
            answered(method_not_found(f"{ask.method}: {lack}"))

    def finish(self, outcome: Completed | RpcError) -> bool:
        """Ends the call. Whether the worker had fetched it."""
        is_lost = isinstance(outcome, RpcError) and not self.production.ended
        was_fetched = self.executor.release(self, str(outcome) if is_lost else None)
        self.production.end()
        self.outcome = outcome
        self.finished.set()
        return was_fetched
