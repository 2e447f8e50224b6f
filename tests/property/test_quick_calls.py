"""Calls that begin and end in place: whatever happens in any order, each has one ending and leaves nothing behind."""

import gc
import weakref
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.call import Call, CallChannel, Question
from mcp_hub.calls.plan import CallPlan, TimeLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import RpcError
from mcp_hub.events import Cancelled, Completed, Failed, Progressed
from tests.unit.calls.call_scripts import DONE, new_call
from tests.unit.calls.virtual_time import LoopClock, run, sleep
from tests.unit.fakes import IdleUpstream

LIMITS = TimeLimits(5, 50)
EVENTS = ("answer", "error", "cancel", "lost", "progress", "question", "wait")


class Sent:
    """A request that is written; `outcome` is set when it is settled."""

    def __init__(self, server: "Server", channel: CallChannel) -> None:
        self._server = server
        self._then: Callable[[], object] | None = None
        self.channel = channel
        self.outcome: Completed | RpcError | None = None

    def then(self, callback: Callable[[], object]) -> None:
        self._then = callback

    def settle(self, outcome: Completed | RpcError) -> None:
        if self.outcome is None:
            self.outcome = outcome
            if self._then is not None:
                self._then()

    def result(self) -> Completed | None:
        return self.outcome if isinstance(self.outcome, Completed) else None

    def leave(self) -> None:
        self._server.here.remove(self)

    def abandon(self) -> None:
        self._server.here.remove(self)
        self._then = None

    async def finish(self) -> Completed:
        self._server.here.remove(self)
        if isinstance(self.outcome, RpcError):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


class Server(IdleUpstream):
    """Takes every call in place, unless it `is_congested` or refuses; `here` are those that have not left."""

    def __init__(self) -> None:
        super().__init__("git")
        self.here: list[Sent] = []
        self.is_congested = False
        self.refuses = False

    def begin(self, call: Call, channel: CallChannel) -> Sent | None:  # type: ignore[override]  # it does begin
        if self.refuses:
            raise RpcError("refused")
        if self.is_congested:
            return None
        self.here.append(sent := Sent(self, channel))
        return sent

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        return DONE


def happen(event: str, registry: CallRegistry, record: CallRecord, server: Server) -> None:
    sent = next((own for own in server.here if own.channel is record), None)
    if event == "cancel":
        registry.cancel(record)
    elif sent is None:
        return
    elif event == "answer":
        sent.settle(DONE)
    elif event in ("error", "lost"):
        sent.settle(RpcError(event))
    elif event == "progress":
        record.send(Progressed(1))
    elif event == "question":
        record.ask(Question("roots/list", b"{}", lambda outcome: None))


SCRIPTS = st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3)), max_size=12)


@given(SCRIPTS, st.sampled_from(["free", "congested", "refusing"]), st.integers(1, 4))
def test_each_call_has_one_ending_and_nothing_is_left(script: list[tuple[str, int]], mood: str, running: int) -> None:
    async def scenario() -> None:
        server = Server()
        server.is_congested, server.refuses = mood == "congested", mood == "refusing"
        registry = CallRegistry(LoopClock(), running, 9)
        records = [registry.start(new_call(), server.call, LIMITS, CallPlan(server)) for _ in range(4)]
        for event, number in script:
            if event == "wait":
                await sleep(1)
            else:
                happen(event, registry, records[number], server)
        await sleep(1000)  # what was not answered runs out of time
        for record in records:
            endings = [event for event in record.log._events if isinstance(event, Completed | Failed | Cancelled)]
            assert len(endings) == 1 and record.state == "ended"
            assert not record.questions.open
        assert not server.here and not len(registry)

    run(scenario)


def test_4096_waiting_calls_end_in_the_turn_of_their_answers() -> None:
    async def scenario() -> None:
        server = Server()
        registry = CallRegistry(LoopClock(), 4096, 0)
        records = [registry.start(new_call(), server.call, LIMITS, CallPlan(server)) for _ in range(4096)]
        assert len(server.here) == 4096 and all(record.task is None for record in records)
        for sent in list(server.here):
            sent.settle(DONE)
        assert all(record.log.ended for record in records) and not server.here and not len(registry)

    run(scenario)


def test_a_call_that_has_ended_is_freed_without_the_garbage_collector() -> None:
    async def scenario() -> None:
        server = Server()
        registry = CallRegistry(LoopClock(), 1, 0)
        gone = weakref.ref(registry.start(new_call(), server.call, LIMITS, CallPlan(server)))
        gc.disable()
        try:
            assert gone() is not None
            server.here[0].settle(DONE)
            assert gone() is None
        finally:
            gc.enable()

    run(scenario)
