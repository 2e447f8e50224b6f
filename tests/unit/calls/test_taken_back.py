"""Partial content that a streaming server takes back (docs/specification/streams.md IM-3). In virtual time."""

from collections.abc import Sequence

import msgspec
import pytest

from mcp_hub.calls.coalesce import Places, added
from mcp_hub.calls.coalesce import taken_back as taken_back_at
from mcp_hub.events import CallEvent, Delta, Progressed, Reset
from tests.unit.calls.call_scripts import DONE, LONG, new_call
from tests.unit.calls.durable_hub import DurableHub, written
from tests.unit.calls.test_attempts import LOST, TEXT, Step, plan, script, sent
from tests.unit.calls.virtual_time import sleep, virtual


def piece(text: str, origin: int, index: int = 0) -> Step:
    return sent(Delta(f'[{{"type":"text","text":"{text}"}}]'.encode(), index, origin=origin))


def taken_back(origin: int) -> Step:
    return sent(Reset(0, "taken_back", origin=origin))


def joined(events: Sequence[CallEvent]) -> str:
    """The text so far, as a client has it."""
    pieces: list[tuple[int, str]] = []
    for seq, event in enumerate(events, 1):
        if isinstance(event, Reset):
            assert 1 <= event.discard_from < seq
            pieces = [(number, text) for number, text in pieces if number < event.discard_from]
        elif isinstance(event, Delta):
            pieces.append((seq, event.text))
    return "".join(text for _, text in pieces)


@pytest.mark.parametrize(
    ("steps", "text", "numbers"),
    [
        ([piece("a", 2), piece("b", 3), taken_back(2), piece("c", 6)], "c", [1]),
        ([piece("a", 2), 1.0, piece("b", 3), taken_back(3), piece("c", 6)], "ac", [1]),
        ([piece("a", 2), 1.0, piece("b", 5), taken_back(4), piece("c", 7), taken_back(7)], "a", [1, 1]),
        ([piece("a", 2), taken_back(3), piece("b", 5)], "ab", []),
        ([taken_back(2), piece("b", 5)], "b", []),
        ([piece("a", 2), taken_back(2), taken_back(2), piece("b", 5)], "b", [1]),
        ([piece("a", 7), 1.0, piece("b", 2), taken_back(2)], "a", [1]),
        ([sent(TEXT), taken_back(2)], "half", []),
    ],
)
@pytest.mark.parametrize("members", [{}, {"wants_progress": True, "takes_events": True}])
@virtual
async def test_partial_content_that_its_server_takes_back_is_taken_back_here(
    steps: Sequence[Step], text: str, numbers: list[int], members: dict[str, object]
) -> None:
    hub = DurableHub()
    call = msgspec.structs.replace(new_call(), **members)
    hub.registry.start(call, script([sent(Progressed(1)), *steps, DONE]), LONG, plan())
    await sleep(10)
    events = written(hub, call.id)
    assert joined(events) == text
    assert [event.number for event in events if isinstance(event, Reset)] == numbers


@virtual
async def test_a_server_takes_back_content_of_the_present_attempt_only() -> None:
    hub = DurableHub()
    call = new_call()
    first = [piece("a", 2), piece("b", 3), taken_back(2), LOST]
    hub.registry.start(call, script(first, [piece("c", 2), 1.0, piece("d", 3), taken_back(3), DONE]), LONG, plan())
    await sleep(10)
    events = written(hub, call.id)
    assert joined(events) == "c"
    assert [event.number for event in events if isinstance(event, Reset)] == [1, 2, 2]


def test_much_partial_content_of_a_server_is_not_remembered_whole() -> None:
    places: Places = ()
    for number in range(2, 2002):
        places = added(places, number, number + 100)
    assert len(places) <= 256 and places[0] == (2, 102) and places[-1] == (2001, 2101)
    assert taken_back_at(places, 2, 0) == (102, ())
    assert taken_back_at(places, 2001, 0) == (2101, places[:-1])
