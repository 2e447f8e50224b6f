"""Every store against a plain model of what was asked of it; the failsafe one with a disk that is full now and then."""

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog
from anyio.from_thread import start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mcp_hub.call import StreamInfo
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores.base import ENDINGS, Change, Chunk, EventStore, Message, StoreLimits
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.stores.recovery.failsafe import FailsafeStore, failsafe_on_file
from tests.examples import examples
from tests.unit.stores.broken_files import HandClock, empty_disk, fill_disk
from tests.unit.stores.event_stores import GONE, SoleStore, line, new_row, replayed, settled

LIMITS = StoreLimits(stream_events=20, stream_bytes=9000, ended=4)
EVENTS, BYTES = LIMITS.stream_events, LIMITS.stream_bytes

indexes = st.integers(0, 100)
sizes = st.sampled_from([0, 0, 10, 700])
statuses = st.sampled_from([None, None, None, "working", "input_required", "completed", "failed", "cancelled"])
extras = st.fixed_dictionaries(
    {},
    optional={
        "message": st.sampled_from(["hello", "é\n"]),
        "continuation": st.sampled_from([b"", b"c" * 900]),
        "info": st.just(b"i"),
        "ttl": st.sampled_from([0.0, 50.0]),
    },
)


class Known:
    """What the model knows of a stream: its row (`first` aside), all its lines, and how they came."""

    def __init__(self, row: StreamInfo) -> None:
        self.row = row
        self.lines: list[bytes] = []
        self.newest = 0
        self.is_mine = True
        self.messages: list[Message] = []

    def grow(self, lines: tuple[bytes, ...], **changes: Any) -> None:
        fields = {name: getattr(self.row, name) for name in self.row.__struct_fields__}
        fields |= {name: value for name, value in changes.items() if value is not None}
        self.lines += lines
        self.newest = len(lines) or self.newest
        fields["last"] = len(self.lines)
        if fields["status"] in ENDINGS:
            fields["expires"] = fields["updated"] + fields["ttl"]
            self.messages = []
        self.row = StreamInfo(**fields)


class AnyStore(RuleBasedStateMachine):
    """`new_store` says which."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(structlog.testing.capture_logs())
        self.folder = Path(tempfile.mkdtemp())
        self.stack.callback(shutil.rmtree, self.folder)
        self.call = self.stack.enter_context(start_blocking_portal()).call
        self.clock = HandClock()
        self.store = self.new_store()
        self.call(self.store.open)
        self.stack.callback(lambda: self.call(self.store.close))
        self.known: dict[str, Known] = {}
        self.time = 100.0
        self.is_full = False

    def new_store(self) -> EventStore:
        return MemoryStore(LIMITS)

    def teardown(self) -> None:
        self.stack.close()

    def pick(self, index: int) -> Known | None:
        known = list(self.known.values())
        return known[index % len(known)] if known else None

    def ask(self, ask: Any) -> StoreError | None:
        try:
            self.call(settled, ask)
        except StoreError as error:
            return error
        return None

    def lines(self, first: int, count: int, size: int) -> tuple[bytes, ...]:
        return tuple(line(number, size) for number in range(first, first + count))

    @rule(
        count=st.integers(0, 5), size=sizes, owned=st.booleans(), key=st.sampled_from([None, None, "a", "b"]),
        principal=st.sampled_from("pq"), changes=extras,
    )  # fmt: skip
    def create(self, count: int, size: int, owned: bool, key: str | None, principal: str, changes: Any) -> None:
        key = None if self.is_full else key
        self.time += 1
        fields = {"principal": principal, "key": key, "created": self.time, "updated": self.time, **changes}
        row = new_row(self.store, **fields, **({} if owned else {"owner": GONE}))
        taken = key is not None and any((k.row.principal, k.row.key) == (principal, key) for k in self.known.values())
        lines = self.lines(1, count, size)
        begun = msgspec.structs.replace(row, last=count)
        error = self.ask(lambda done: self.store.log.create(begun, Chunk(1, lines), done))
        assert isinstance(error, KeyTaken) if taken else error is None
        if not taken:
            self.known[row.id] = Known(row)
            self.known[row.id].grow(lines)

    @rule(
        index=indexes, count=st.integers(0, 9), size=sizes, status=statuses, changes=extras,
        epoch=st.sampled_from([0, 0, 0, 0, 0, -1, 1]), gap=st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
    )  # fmt: skip
    def append(self, index: int, count: int, size: int, status: Any, changes: Any, epoch: int, gap: int) -> None:
        known = self.pick(index)
        if known is None or not known.is_mine:
            return
        self.time += 1
        row, first = known.row, known.row.last + 1 + gap
        lines = self.lines(first, count, size)
        change = Change(self.time, status, **changes)
        error = self.ask(
            lambda done: self.store.log.append(row.id, row.epoch + epoch, Chunk(first, lines), change, done)
        )
        if row.has_ended or epoch or (gap and count):
            assert isinstance(error, Fenced)
        else:
            assert error is None
            known.grow(lines, updated=self.time, status=status, **changes)

    @precondition(lambda self: not self.is_full)
    @rule(index=indexes, count=st.integers(0, 2), status=statuses, stale=st.sampled_from(["", "", "epoch", "last"]))
    def claim(self, index: int, count: int, status: Any, stale: str) -> None:
        known = self.pick(index)
        if known is None:
            return
        self.time += 1
        lines = self.lines(known.row.last + 1, count, 0)
        fields = {name: getattr(known.row, name) for name in known.row.__struct_fields__}
        asked = StreamInfo(**{**fields, **({stale: fields[stale] - 1} if stale else {})})
        claimed = self.call(self.store.leases.claim, asked, lines, Change(self.time, status))
        if known.row.owner == self.store.log.instance or known.row.has_ended or stale:
            assert claimed is None
            return
        known.grow(lines, updated=self.time, status=status, owner=self.store.log.instance, epoch=known.row.epoch + 1)
        known.is_mine = True
        assert claimed == self.call(self.store.log.find, known.row.id)

    @rule(index=indexes, after=st.integers(-1, 60), most=st.integers(0, 30))
    def fetch(self, index: int, after: int, most: int) -> None:
        known = self.pick(index)
        if known is None:
            return
        page = self.call(settled, lambda done: self.store.log.fetch(known.row.id, after, most, done))
        kept = self.call(self.store.log.find, known.row.id)
        assert kept is not None
        start = max(after + 1, kept.first)
        assert page.lines == tuple(known.lines[start - 1 : start - 1 + len(page.lines)])
        assert page.first == (start if page.lines else known.row.last + 1)
        left = known.row.last - start + 1
        assert len(page.lines) <= max(most, 1)
        assert bool(page.lines) is (left > 0)
        assert (page.row.last, page.row.status) == (known.row.last, known.row.status)

    @precondition(lambda self: not self.is_full)
    @rule(index=indexes, kind=st.sampled_from(["cancel", "input"]), body=st.binary(max_size=3))
    def post(self, index: int, kind: Any, body: bytes) -> None:
        known = self.pick(index)
        if known is None:
            return
        message = Message(known.row.id, kind, body)
        assert self.call(self.store.inbox.post, message) is not known.row.has_ended
        cancels = kind == "cancel" and any(other.kind == "cancel" for other in known.messages)
        if not known.row.has_ended and not cancels:
            known.messages.append(message)

    @precondition(lambda self: not self.is_full)
    @rule()
    def inbox(self) -> None:
        messages = self.call(self.store.inbox.take)
        mine = [known for known in self.known.values() if known.row.owner == self.store.log.instance]
        for known in mine:
            assert [message for message in messages if message.stream == known.row.id] == known.messages
        assert len(messages) == sum(len(known.messages) for known in mine)
        for known in mine:
            known.messages = []

    @precondition(lambda self: not self.is_full)
    @rule(later=st.sampled_from([0.0, 10.0, 60.0, 90000.0]))
    def sweep(self, later: float) -> None:
        self.time += later
        ended = sorted((k for k in self.known.values() if k.row.has_ended), key=lambda known: known.row.updated)
        gone = {known.row.id for known in ended if known.row.expires is not None and known.row.expires <= self.time}
        left = [known.row.id for known in ended if known.row.id not in gone]
        gone.update(left[: max(len(left) - LIMITS.ended, 0)])
        assert self.call(self.store.sweep, self.time) == len(gone)
        for id_ in gone:
            del self.known[id_]

    @precondition(lambda self: not self.is_full)
    @rule()
    def orphans(self) -> None:
        known = {
            k.row.id for k in self.known.values() if not k.row.has_ended and k.row.owner != self.store.log.instance
        }
        assert {row.id for row in self.call(self.store.leases.orphans)} == known

    @invariant()
    def every_stream_is_whole(self) -> None:
        for known in self.known.values():
            kept = self.call(self.store.log.find, known.row.id)
            assert kept is not None
            fields = {name: getattr(known.row, name) for name in known.row.__struct_fields__}
            assert kept == StreamInfo(**{**fields, "first": kept.first})
            lines = self.call(replayed, self.store, kept, 7)
            assert lines == known.lines[kept.first - 1 :]
            size = sum(map(len, known.lines))
            if len(known.lines) <= EVENTS and size + len(known.lines) <= BYTES:
                assert kept.first == 1, "nothing had to go"
            assert self.keeps_too_much(known, len(lines), sum(map(len, lines))) is False
        for principal in "pq":
            rows = self.call(self.store.log.rows, principal, 1000)
            expected = [k.row for k in self.known.values() if k.row.principal == principal]
            assert [row.id for row in rows] == [row.id for row in sorted(expected, key=lambda row: -row.created)]

    def keeps_too_much(self, known: Known, events: int, size: int) -> bool:
        return (events > EVENTS or size > BYTES) and events > known.newest


class AnySqliteStore(AnyStore):
    def new_store(self) -> EventStore:
        return SoleStore(self.folder, LIMITS, self.clock)

    @rule()
    def reopen(self) -> None:
        self.come_home()
        self.call(self.store.close)
        self.store = self.new_store()
        self.call(self.store.open)
        for known in self.known.values():
            known.is_mine = False

    def come_home(self) -> None:
        pass


class AnyFailsafeStore(AnySqliteStore):
    store: FailsafeStore

    def new_store(self) -> EventStore:
        return failsafe_on_file(self.folder, LIMITS, self.clock)

    @rule()
    def fill_disk(self) -> None:
        self.call(fill_disk, self.store)
        self.is_full = True

    @rule()
    def empty_disk(self) -> None:
        self.come_home()

    @rule(seconds=st.sampled_from([1.0, 5.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.call(self.store.inbox.has_news)

    def come_home(self) -> None:
        """Once the disk has room and everything running has been appended to, all is in the file."""
        self.call(empty_disk, self.store)
        self.is_full = False
        self.clock.seconds += 400
        probe = new_row(self.store, status="completed", ttl=-1.0, updated=0.0)
        assert self.ask(lambda done: self.store.log.create(probe, Chunk(1, ()), done)) is None
        self.known[probe.id] = Known(probe)
        self.known[probe.id].grow(())
        assert self.store.log.is_durable
        for known in self.known.values():
            if known.is_mine and not known.row.has_ended:
                assert self.ask(partial(self.touch, known.row)) is None
        self.call(self.store.inbox.has_news)
        self.sweep(0.0)

    def touch(self, row: StreamInfo, done: Any) -> None:
        self.store.log.append(row.id, row.epoch, Chunk(0, ()), Change(row.updated), done)

    def keeps_too_much(self, known: Known, events: int, size: int) -> bool:
        """A stream that is away may have as much in memory as in the file."""
        return (events > 2 * EVENTS or size > 2 * BYTES) and events > 2 * known.newest


TestMemoryStore = AnyStore.TestCase
TestSqliteStore = AnySqliteStore.TestCase
TestFailsafeStore = AnyFailsafeStore.TestCase
TestMemoryStore.settings = TestSqliteStore.settings = TestFailsafeStore.settings = settings(
    max_examples=examples(40), stateful_step_count=30, deadline=None
)
