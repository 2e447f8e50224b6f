"""Waiting calls: a state opens its call once, for the same request of the same principal, in time; nothing else."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from mcp_hub.app.code_runs import deployment_key
from mcp_hub.call import Call, CallChannel
from mcp_hub.calls import pending_input
from mcp_hub.calls.hub_tools.stream_wait import rejoining
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import CallRecord, new_record
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.errors import InvalidParams, RpcError, StoreError, StoreUnavailable
from mcp_hub.ids import new_call_id
from mcp_hub.types import CallId, Era
from tests.unit.fakes import HandClock, unused


def call(arguments: str = '{"a":1,"b":[2]}', **differs: Any) -> Call:
    params = {"name": msgspec.Raw(b'"ask"'), "arguments": msgspec.Raw(arguments.encode())}
    made = Call(new_call_id(), "git", "tools/call", params, {}, "s", "anna", Era.MODERN, {})
    return msgspec.structs.replace(made, **differs)


class Waiting:
    """A pending_input with one call in it."""

    def __init__(self, seconds: float = 600) -> None:
        self.clock = HandClock()
        self.cancelled: list[tuple[CallRecord, str]] = []
        self.pending_input = PendingInput(self.clock, seconds, lambda record, why: self.cancelled.append((record, why)))
        self.record = self.made()
        self.state = self.pending_input.hold(self.record, 7)

    def made(self) -> CallRecord:
        return new_record(call(), unused, TimeLimits(1, 1), self.clock)

    def refuses(self, state: str, retry: Call) -> None:
        with pytest.raises(InvalidParams, match="requestState is unknown"):
            self.pending_input.fetch(state, retry)

    def refuses_own(self, state: str, retry: Call) -> None:
        with pytest.raises(InvalidParams, match="not given by this server to this client"):
            self.pending_input.unmark(retry, state)


def test_the_retry_finds_the_call_where_it_was_left() -> None:
    waiting = Waiting()
    pending = waiting.pending_input.fetch(waiting.state, call())
    assert pending.record is waiting.record and pending.after == 7
    assert len(waiting.pending_input) == 0


def test_a_state_opens_its_call_once_also_after_the_next_wait() -> None:
    waiting = Waiting()
    waiting.pending_input.fetch(waiting.state, call())
    waiting.refuses(waiting.state, call())
    following = waiting.pending_input.hold(waiting.record, 9)
    waiting.refuses(waiting.state, call())
    assert waiting.pending_input.fetch(following, call()).after == 9


OTHERS: Mapping[str, Call] = {
    "principal": call(principal="bert"),
    "server": call(upstream="hg"),
    "method": call(method="prompts/get"),
    "arguments": call('{"a":2,"b":[2]}'),
    "more arguments": call('{"a":1,"b":[2],"c":null}'),
}


@pytest.mark.parametrize("retry", OTHERS.values(), ids=OTHERS.keys())
def test_another_request_does_not_open_it(retry: Call) -> None:
    waiting = Waiting()
    waiting.refuses(waiting.state, retry)
    assert waiting.pending_input.fetch(waiting.state, call()), "a failed attempt must not use it up"


@pytest.mark.parametrize("at", range(0, 200, 3))
def test_no_character_can_be_changed(at: int) -> None:
    waiting = Waiting()
    if at < len(waiting.state) and at >= len("hub1."):
        other = "x" if waiting.state[at] != "x" else "y"
        waiting.refuses(waiting.state[:at] + other + waiting.state[at + 1 :], call())
    assert waiting.pending_input.fetch(waiting.state, call())


@pytest.mark.parametrize("state", ["hub1.", "hub1..", "hub1.a.b.c", "hub1.ü.ü.ü", "hub1." + "x" * 10_000])
def test_nonsense_is_refused(state: str) -> None:
    waiting = Waiting()
    waiting.refuses(state, call())


def test_another_hub_does_not_take_it() -> None:
    waiting, other = Waiting(), Waiting()
    other.refuses(waiting.state, call())


def test_what_nobody_fetches_is_cancelled_in_time() -> None:
    waiting = Waiting(seconds=60)
    waiting.clock.time += 59.9
    waiting.pending_input.hold(waiting.made(), 0)
    assert not waiting.cancelled
    waiting.clock.time += 0.2
    waiting.refuses(waiting.state, call())
    assert [record for record, _ in waiting.cancelled] == [waiting.record]


def test_the_call_that_waits_longest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_input, "_MOST", 3)
    waiting = Waiting()
    for _ in range(3):
        waiting.pending_input.hold(waiting.made(), 0)
    assert [record for record, _ in waiting.cancelled] == [waiting.record] and len(waiting.pending_input) == 3


def test_marks_tell_the_states_of_servers_from_the_hubs_own() -> None:
    for own in ("", "hub1.x", "up1.x", "ü"):
        waiting = Waiting()
        state = waiting.pending_input.mark(call(), own)
        assert not pending_input.is_pending(state) and waiting.pending_input.unmark(call("{}"), state) == own
        changed = state[:-1], f"{state}x", state.replace("1.", "1.x")
        for forged in ("", "x", "hub1.x", "up1.", own, f"up1.{own}", *changed):
            waiting.refuses_own(forged, call())


@pytest.mark.parametrize("differs", [{"principal": "bert"}, {"upstream": "other"}, {"principal": '","'}])
def test_a_servers_own_state_is_of_use_to_the_client_that_got_it_alone(differs: dict[str, str]) -> None:
    waiting = Waiting()
    state = waiting.pending_input.mark(call(), "mine")
    waiting.refuses_own(state, call(**differs))
    assert waiting.pending_input.unmark(call(), state) == "mine"


def test_hubs_with_one_key_know_each_others_states_and_it_is_asked_for_once() -> None:
    asked: list[int] = []

    def key() -> bytes:
        asked.append(1)
        return b"k" * 32

    one, two = (PendingInput(HandClock(), 1, lambda record, why: None, key) for _ in range(2))
    assert not asked
    for own in ("a", "b"):
        assert two.unmark(call(), one.mark(call(), own)) == own
    assert len(asked) == 2
    Waiting().refuses_own(one.mark(call(), "a"), call())


ODD = {
    "huge": '{"n":1' + "0" * 5000 + "}",
    "deep": "[" * 100_000 + "]" * 100_000,
    "surrogate": r'{"s":"\ud83d"}',
    "exponent": '{"n":1e400}',
}


@pytest.mark.parametrize("arguments", ODD.values(), ids=ODD.keys())
def test_arguments_that_cannot_be_decoded_are_compared_as_they_were_written(arguments: str) -> None:
    waiting = Waiting()
    odd = new_record(call(arguments), unused, TimeLimits(1, 1), waiting.clock)
    state = waiting.pending_input.hold(odd, 0)
    waiting.refuses(state, call(arguments.replace("1", "2").replace("[[", "[ [").replace("d83d", "d83c")))
    assert waiting.pending_input.fetch(state, call(arguments)).record is odd


def test_key_of_replicas_is_never_a_hubs_own(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(replicas=None)
    own = deployment_key(tmp_path, store)()
    assert len(own) == 32 and deployment_key(tmp_path, store)() == own, "a hub alone keeps its key"
    store.replicas = SimpleNamespace(secret=None)
    key = deployment_key(tmp_path, store)
    with pytest.raises(StoreUnavailable, match="has not answered since this hub started"):
        key()
    store.replicas.secret = b"theirs"
    assert key() == b"theirs"


def test_before_the_key_of_replicas_is_known_no_state_is_given_or_judged() -> None:
    keys: list[bytes] = []
    cancelled: list[CallRecord] = []

    def key() -> bytes:
        if not keys:
            raise StoreUnavailable("not yet")
        return keys[0]

    one = PendingInput(HandClock(), 60, lambda record, why: cancelled.append(record), key, has_replicas=True)
    two = PendingInput(HandClock(), 60, lambda record, why: None, lambda: b"k" * 32, has_replicas=True)
    made, record = call(), new_record(call(), unused, TimeLimits(1, 1), HandClock())
    theirs, own = two.seal(made), two.mark(made, "own")
    with pytest.raises(RpcError, check=lambda error: error.symbol == "store_unavailable" and error.is_outcome_unknown):
        one.hold(record, 7)
    assert cancelled == [record] and len(one) == 0, "nobody can come back to it"
    for ask in (one.mark, one.unmark):
        with pytest.raises(StoreUnavailable):
            ask(made, own)
    with pytest.raises(StoreUnavailable):
        one.elsewhere(theirs, made)
    keys.append(b"k" * 32)
    assert (one.elsewhere(theirs, made), one.unmark(made, own)) == (made.id, "own"), "they were not used up"
    assert (two.elsewhere(one.seal(made), made), two.unmark(made, one.mark(made, "own"))) == (made.id, "own")


@pytest.mark.anyio
async def test_retry_whose_call_the_store_does_not_show_may_be_sent_again() -> None:
    class Away:
        async def open(self, *stream: object) -> None:
            raise StoreError("the store does not answer")

    with pytest.raises(StoreUnavailable, match="cannot be continued here: the store does not answer"):
        await rejoining(cast(StreamPort, Away()), CallId("st_1"), {})(call(), cast(CallChannel, None))
