"""The records of `upstream`: executors, their calls, and the offers for workers."""

from collections import OrderedDict, deque
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.types import RawObject
from mcp_hub.upstreams.executors.posts import ProducerLimits, Production


class ExecutorLimits(msgspec.Struct, frozen=True):
    """`executors` of the hub, `tools` and bytes of `definitions` of each, and its calls: `waiting` to be fetched,
    `running` at the worker. Seconds: `silence`, the longest without a post for a call that was fetched and has no
    question open; `catch_up` and `keeping`, the longest a post is held because readers are behind, and until it is
    stored. `ended` calls are remembered for late posts, and as many removed executors for their epochs."""

    executors: int = 256
    tools: int = 1000
    definitions: int = 1 << 20
    waiting: int = 256
    running: int = 1024
    silence: float = 60.0
    catch_up: float = 1.0
    keeping: float = 10.0
    ended: int = 4096
    producer: ProducerLimits = ProducerLimits()


class CallOffer(msgspec.Struct, frozen=True, tag_field="type", tag="call", rename={"meta": "_meta"}):
    """A call for the worker: the tool's own name, its arguments, the client's `_meta`, events that may be posted."""

    tool_call_id: str
    name: str
    arguments: msgspec.Raw
    meta: RawObject
    credit: int


class CancelOffer(msgspec.Struct, frozen=True, tag_field="type", tag="cancel"):
    """A call that the worker has fetched is over, though the worker did not end it; nobody waits for the result."""

    tool_call_id: str
    reason: str


class InputOffer(msgspec.Struct, frozen=True, tag_field="type", tag="input"):
    """The answer to a question under the worker's `key`: the caller's result, or an error object instead."""

    tool_call_id: str
    key: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


CANCELLED: Final = RpcError("The call was cancelled.")

Offer = CallOffer | CancelOffer | InputOffer


class Posted(msgspec.Struct, frozen=True):
    """The post was taken, now or before (`is_duplicate`). At most `credit` events may follow; 0: wait."""

    credit: int
    is_duplicate: bool = False


class Executor(msgspec.Struct, eq=False):
    """A worker's registration; the lease ends when it is `due`. `news` are of calls that were `given` to it."""

    key: tuple[str, str]
    epoch: int = 0
    tools: dict[str, bytes] = msgspec.field(default_factory=dict)
    lease: float = 0.0
    due: float = 0.0
    waiting: OrderedDict[str, "Work"] = msgspec.field(default_factory=OrderedDict)
    given: dict[str, "Work"] = msgspec.field(default_factory=dict)
    news: deque[CancelOffer | InputOffer] = msgspec.field(default_factory=deque)
    bell: anyio.Event = msgspec.field(default_factory=anyio.Event)

    def ring(self) -> None:
        """Wakes every request that waits for offers."""
        self.bell.set()
        self.bell = anyio.Event()

    def take(self, most: int, running: int, now: float) -> list[Offer]:
        """The next offers, news first, so that it stays short; new calls while fewer than `running` are given."""
        offers: list[Offer] = []
        while self.news and len(offers) < most:
            offer = self.news.popleft()
            if isinstance(offer, InputOffer):
                self.given[offer.tool_call_id].production.answered(offer.key)
            offers.append(offer)
        while self.waiting and len(offers) < most and len(self.given) < running:
            id_, work = self.waiting.popitem(last=False)
            self.given[id_] = work
            work.heard = now
            offers.append(work.offer)
        return offers


class Work(msgspec.Struct, eq=False):
    """One call. `heard` is when the worker last posted for it, `asking` how many of its questions are open."""

    executor: Executor
    call: Call
    channel: CallChannel
    offer: CallOffer
    production: Production
    heard: float = 0.0
    asking: int = 0
    outcome: Completed | RpcError = CANCELLED
    done: anyio.Event = msgspec.field(default_factory=anyio.Event)
