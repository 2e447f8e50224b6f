from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.calls.machine import advance
from mcp_hub.errors import Busy, RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Ending, Failed, Log, Progressed, Started
from mcp_hub.types import Status

EVERY: list[CallEvent] = [
    *(Started(), Progressed(1.0), Delta(b"[]"), Log("info", b"{}")),
    *(Completed(b"{}"), Failed(RpcError("x")), Failed(Busy("y")), Cancelled(), Cancelled("reason")),
]
events = st.lists(st.sampled_from(EVERY) | st.just(Started()), max_size=30)


def play(*steps: CallEvent | Status) -> None:
    """A conversation: events, each followed by the status that it leads to."""
    status: Status | None = None
    for step in steps:
        if isinstance(step, str):
            assert status == step
        else:
            status = advance(status, step)


def accepted(sequence: list[CallEvent]) -> list[CallEvent]:
    """What is left of a sequence when refused events are dropped."""
    status: Status | None = None
    kept = []
    for event in sequence:
        try:
            after = advance(status, event)
        except ValueError:
            continue
        status = after
        kept.append(event)
    return kept


def test_a_call_works_until_its_ending() -> None:
    play(Started(), "working", Progressed(1.0), "working", Delta(b"[]"), "working")
    play(Started(), Log("info", b"{}"), "working", Completed(b"{}"), "completed")
    play(Started(), Failed(RpcError("x")), "failed")
    play(Started(), Cancelled(), "cancelled")


@given(events)
def test_every_sequence_is_accepted_or_refused_and_has_at_most_one_ending(sequence: list[CallEvent]) -> None:
    kept = accepted(sequence)
    assert sum(isinstance(event, Ending) for event in kept) <= 1
    assert not any(isinstance(event, Ending) for event in kept[:-1]), "nothing follows an ending"
    assert [isinstance(event, Started) for event in kept] == [place == 0 for place in range(len(kept))]


@given(events)
def test_a_refused_event_changes_nothing(sequence: list[CallEvent]) -> None:
    assert accepted(accepted(sequence)) == accepted(sequence)


@given(events)
def test_nothing_but_what_the_table_forbids_is_refused(sequence: list[CallEvent]) -> None:
    if Started() in sequence:
        rest = [event for event in sequence[sequence.index(Started()) :] if not isinstance(event, Started)]
        ending = next((place for place, event in enumerate(rest) if isinstance(event, Ending)), len(rest))
        assert accepted(sequence) == [Started(), *rest[: ending + 1]]
    else:
        assert accepted(sequence) == []
