"""Whatever calls, clients and hubs do: each follower gets the committed events behind its cursor, once, to one ending.

Two hubs share a store that answers late; either may die at any moment and be replaced by a new one. Virtual time.
"""

import asyncio
import json
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcp_hub.call import Question
from mcp_hub.errors import EventsGone, InvalidParams
from mcp_hub.events import Cancelled, Completed, Delta, Failed, InputReceived, InputRequired, Log, Progressed, Started
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.stores.base import StoreLimits
from tests.examples import examples
from tests.unit.calls.durable_hub import HOW, DurableCall, DurableHub, Follower, delta, settle
from tests.unit.calls.shared_store import HubStore, Shared
from tests.unit.calls.virtual_time import VirtualLoop, sleep

PICK = st.integers(0, 1000)
ENDINGS = (Completed, Failed, Cancelled)


@dataclass
class Known:
    """What has been seen of one stream: everything that was ever committed, and what its call said."""

    id: str
    lines: list[bytes] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    deaths: int = 0


@dataclass
class Client:
    """Somebody who reads a stream and comes back; `lines` is what has arrived from event `after` + 1 on."""

    of: Known
    after: int
    lines: list[bytes] = field(default_factory=list)
    follower: Follower | None = None
    is_told_gone: bool = False

    @property
    def cursor(self) -> int:
        return self.after + len(self.lines)

    def is_cut_off(self, lost: int = 0) -> None:
        follower, self.follower = self.follower, None
        if follower is not None:
            follower.reader.close()
            self.lines += follower.lines[: max(len(follower.lines) - lost, 0)]
            if isinstance(follower.reader.failed, EventsGone):
                self.is_told_gone = True


class Streams(RuleBasedStateMachine):
    @initialize(seed=PICK, is_late=st.booleans())
    def begin(self, seed: int, is_late: bool) -> None:
        chance = random.Random(seed)
        self.delay = (lambda: chance.uniform(0, 0.15)) if is_late else None
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.shared = Shared(StoreLimits(stream_events=100_000))
        self.hubs = [self.runs(self.new_hub()) for _ in range(2)]
        self.known: list[Known] = []
        self.clients: list[Client] = []
        self.steps = 0

    def runs(self, made: Coroutine[Any, Any, Any]) -> Any:
        with structlog.testing.capture_logs():
            return self.runner.run(made)

    async def new_hub(self) -> DurableHub:
        return DurableHub(HubStore(self.shared, self.delay), takes_up=True).runs()

    def running(self) -> list[tuple[Known, DurableCall]]:
        calls = [call for hub in self.hubs for call in (*hub.calls, *hub.taken_up) if not call.record.log.ended]
        return [(next(each for each in self.known if each.id == call.id), call) for call in calls]

    # -- calls

    @rule(hub=PICK, continues=st.booleans())
    def start(self, hub: int, continues: bool) -> None:
        if len(self.known) < 4:
            self.runs(self._start(self.hubs[hub % 2], continues))

    async def _start(self, hub: DurableHub, continues: bool) -> None:
        call = hub.call()
        self.known.append(Known(call.id))
        await hub.streams.begin(call.record).settled()
        if continues:
            call.record.continuable(HOW)

    @rule(call=PICK, kind=st.sampled_from(["progress", "delta", "delta", "log", "question"]), many=st.integers(1, 60))
    def say(self, call: int, kind: str, many: int) -> None:
        running = self.running()
        if running:
            self.runs(self._say(*running[call % len(running)], kind, many))

    async def _say(self, known: Known, call: DurableCall, kind: str, many: int) -> None:
        for _ in range(many if kind != "question" else 1):
            self.steps += 1
            if kind == "progress":
                call.says(Progressed(self.steps))
            elif kind == "log":
                call.says(Log("info", b'{"level":"info","data":%d}' % self.steps))
            elif kind == "question":
                call.record.ask(Question("roots/list", b"{}", lambda outcome: None))
            else:
                if not call.record.log.ended:  # since it was chosen
                    known.said.append(f"<{self.steps}>")
                call.says(delta(f"<{self.steps}>"))

    @rule(call=PICK, hub=PICK)
    def answer(self, call: int, hub: int) -> None:
        asked = [(known, record.record) for known, record in self.running() if record.record.questions.open]
        if asked:
            known, record = asked[call % len(asked)]
            self.runs(self.hubs[hub % 2].streams.answer("p", known.id, next(iter(record.questions.open)), b"{}"))

    @rule(call=PICK, hub=PICK)
    def cancel(self, call: int, hub: int) -> None:
        if self.known:
            self.runs(self.hubs[hub % 2].streams.cancel("p", self.known[call % len(self.known)].id, "enough"))

    @rule(call=PICK)
    def finish(self, call: int) -> None:
        running = self.running()
        if running:
            running[call % len(running)][1].ends()

    # -- clients

    @rule(call=PICK, hub=PICK, place=st.floats(0, 1))
    def follow(self, call: int, hub: int, place: float) -> None:
        if self.known:
            known = self.known[call % len(self.known)]
            client = Client(known, int(place * len(self.seen(known))))
            self.clients.append(client)
            self.runs(self._resume(client, self.hubs[hub % 2]))

    @rule(client=PICK, lost=st.integers(0, 40))
    def disconnect(self, client: int, lost: int) -> None:
        if self.clients:
            self.clients[client % len(self.clients)].is_cut_off(lost)

    @rule(client=PICK, hub=PICK, lost=st.integers(0, 5))
    def resume(self, client: int, hub: int, lost: int) -> None:
        if self.clients:
            chosen = self.clients[client % len(self.clients)]
            chosen.is_cut_off(lost)
            self.runs(self._resume(chosen, self.hubs[hub % 2]))

    async def _resume(self, client: Client, hub: DurableHub) -> None:
        try:
            client.follower = await hub.follow(client.of.id, client.cursor, most=random.Random(1).choice([None, 3]))
        except EventsGone as gone:
            assert client.cursor + 1 < gone.earliest <= len(self.seen(client.of))
            client.is_told_gone = True

    @rule(hub=PICK, call=PICK)
    def ask_for_what_is_not_there(self, hub: int, call: int) -> None:
        if self.known:
            known = self.known[call % len(self.known)]
            streams = self.hubs[hub % 2].streams
            for attempt in (self.hubs[hub % 2].follow(known.id, 10**6), streams.open("q", known.id)):
                try:
                    self.runs(attempt)
                except InvalidParams:
                    continue
                raise AssertionError

    # -- the store and the hubs

    @rule(call=PICK, keeps=st.integers(1, 50))
    def trim(self, call: int, keeps: int) -> None:
        if self.known:
            known = self.known[call % len(self.known)]
            self.seen(known)
            self.shared.core.streams._streams[known.id].trim(keeps, 1 << 30)  # type: ignore[index]

    @rule(hub=PICK)
    def restart(self, hub: int) -> None:
        dying = self.hubs[hub % 2]
        for known in self.known:
            known.deaths += dying.streams.owned(known.id) is not None  # what it has not written is lost
        for client in self.clients:
            if client.follower is not None and client.follower.reader.stream.store is dying.store:
                client.is_cut_off()
        self.runs(dying.dies())
        self.hubs[hub % 2] = self.runs(self.new_hub())

    @rule(seconds=st.sampled_from([0, 0.01, 0.1, 0.3, 1, 6]))
    def wait(self, seconds: float) -> None:
        self.runs(sleep(seconds))

    # -- what holds

    def seen(self, known: Known) -> list[bytes]:
        """Every line that was ever committed; none is ever changed."""
        row = self.shared.row(known.id)
        if row is not None:
            kept = self.shared.lines(known.id)
            assert known.lines[row.first - 1 :] == kept[: len(known.lines) - row.first + 1]
            known.lines += kept[len(known.lines) - row.first + 1 :]
            assert len(known.lines) == row.last
        return known.lines

    @precondition(lambda self: hasattr(self, "known"))
    @invariant()
    def committed_events_are_numbered_and_nobody_has_any_others(self) -> None:
        for known in self.known:
            self.seen(known)
        for client in self.clients:
            arrived = client.lines + (client.follower.lines if client.follower is not None else [])
            assert arrived == client.of.lines[client.after : client.after + len(arrived)]

    def teardown(self) -> None:
        if hasattr(self, "known"):
            try:
                self.runs(self._finish())
                for known in self.known:
                    self._check(known)
                for client in self.clients:
                    assert client.is_told_gone or client.after + len(client.lines) == len(client.of.lines)
                for hub in self.hubs:
                    assert not hub.streams._owned and not hub.streams._detached and not hub.streams.inbox._messages
            finally:
                self.runner.close()

    async def _finish(self) -> None:
        for _ in range(40):
            for _, call in self.running():
                call.ends()
            await sleep(1)
            if all(row.has_ended for known in self.known if (row := self.shared.row(known.id))):
                break
        for client in self.clients:
            client.is_cut_off(3)
            await self._resume(client, self.hubs[0])
            follower = client.follower
            if follower is not None:
                await settle(lambda follower=follower: follower.at_end or follower.reader.failed)  # type: ignore[misc]
                client.is_cut_off()
        for hub in self.hubs:
            await hub.stops()

    def _check(self, known: Known) -> None:
        lines = self.seen(known)
        events = [decoded(line)[1] for line in lines]
        assert [decoded(line)[0] for line in lines] == list(range(1, len(lines) + 1))
        assert type(events[0]) is Started and isinstance(events[-1], ENDINGS)
        assert sum(isinstance(event, ENDINGS) for event in events) == 1
        row = self.shared.row(known.id)
        assert row is not None and row.has_ended
        values = [event.progress for event in events if isinstance(event, Progressed)]
        assert all(later > sooner for sooner, later in zip(values, values[1:], strict=False))
        asked = [event.key for event in events if isinstance(event, InputRequired)]
        assert len(set(asked)) == len(asked)
        settled = [event.key for event in events if isinstance(event, InputReceived)]
        assert len(set(settled)) == len(settled) and set(settled) <= set(asked)
        text = "".join(
            part["text"] for event in events if isinstance(event, Delta) for part in _content(bytes(event.content))
        )
        if not known.deaths:
            assert text == "".join(known.said), "all that was said has been kept"


def _content(raw: bytes) -> list[dict[str, str]]:
    return json.loads(raw)  # type: ignore[no-any-return]


TestStreams = Streams.TestCase
TestStreams.settings = settings(stateful_step_count=40, max_examples=examples(60))
