"""Partial content as messages of progress for clients, and as text for a model."""

import itertools
import math
from typing import Any

import msgspec
import pytest

from mcp_hub.calls import log, progress
from mcp_hub.calls.progress import Transcript, _PartialText, last_line
from mcp_hub.events import Attempt, CallEvent, Delta, InputRequired, Log, Progressed, Reset
from mcp_hub.masking import learn, visible
from mcp_hub.types import PartialForm
from tests.unit.calls.durable_hub import HOW, DurableCall, DurableHub, Pair, settle
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual


@pytest.fixture(autouse=True)
def seen_events_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test can read what has been said."""
    monkeypatch.setattr(log, "_KEPT", 1000)


def delta(text: str, channel: str = "content", index: int = 0) -> Delta:
    return Delta(msgspec.json.encode([{"type": "text", "text": text}]), index, channel)


def message(text: str) -> dict[str, msgspec.Raw]:
    return {"message": msgspec.Raw(msgspec.json.encode(text))}


def shown(form: PartialForm, *texts: str | Delta) -> list[str | None]:
    """The message after each text, or None."""
    partials, clock = _PartialText(form), itertools.count()
    made: list[str | None] = []
    for text in texts:
        partials.add(text if isinstance(text, Delta) else delta(text), next(clock))
        raw = partials.take(next(clock)) if partials.due < math.inf else None
        made.append(None if raw is None else msgspec.json.decode(raw, type=str))
    return made


@pytest.mark.parametrize(
    ("texts", "messages"),
    [
        (["alpha\n", "beta\n"], ["alpha", "beta"]),
        (["Hel", "lo ", "world\nnew"], ["Hel", "Hello", "Hello world new"]),
        (["a\n\tb\r\nc"], ["a b c"]),
        (["x" * 500], ["…" + "x" * 199]),
        (["x" * 150, "y" * 150], ["x" * 150, "…" + "x" * 49 + "y" * 150]),
        (["\n \n", "\n"], [None, None]),
        (["10%\r", "20%\r", "30%\ndone"], ["10%", "20%", "30% done"]),
    ],
)
def test_a_message_of_one_line_is_the_newest_line(texts: list[str], messages: list[str]) -> None:
    assert shown("line", *texts) == messages


@pytest.mark.parametrize(
    ("texts", "messages"),
    [
        (["alpha\n", "beta\ngamma\n"], ["alpha", "beta\ngamma"]),
        (["Hel", "lo"], ["Hel", "lo"]),
        (["é" * 1000], ["…" + "é" * 510]),
        (["x" * 1024], ["x" * 1024]),
        (["10%\r20%\r"], ["20%"]),
    ],
)
def test_any_other_message_is_the_newest_text(texts: list[str], messages: list[str]) -> None:
    assert shown("text", *texts) == messages


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("alpha\nbeta\r\n", "beta"),
        ("ok\n  a \tb  \n\n", "a b"),
        ("FAIL\n\x1b[0m", "FAIL"),
        ("10%\r20%\r", "20%"),
        ("red \x1b[31mtext\x1b[", "red text"),
        ("x" * 500, "…" + "x" * 199),
        ("\x1b[0m \n", ""),
    ],
)
def test_the_last_line_is_what_a_terminal_shows_last(text: str, line: str) -> None:
    assert last_line(text) == line


@pytest.mark.parametrize("form", ["line", "text"])
def test_a_message_has_no_control_characters_and_no_escape_sequences(form: PartialForm) -> None:
    coloured = (
        "\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ \x9b2J\x1bcbell\x07\x00\x85\x7f"
    )
    assert shown(form, coloured) == ["red link bell"]
    assert shown(form, "a\x1b[3", "1mb\n") == ["a", {"line": "ab", "text": "b"}[form]]


def test_places_of_content_are_apart_and_content_that_is_no_text_is_not_shown() -> None:
    other = delta("note", "aux")
    assert shown("line", "growing", other, Delta(b'[{"type":"image"}]'), Delta(b"[")) == [
        "growing",
        "growing note",
        None,
        None,
    ]


def said(call: DurableCall) -> list[CallEvent]:
    return call.record.log.reader(lambda: None).take()[1:]


def messages(events: list[CallEvent]) -> list[str | None]:
    return [event.message for event in events if isinstance(event, Progressed)]


def calling(hub: DurableHub, **members: Any) -> DurableCall:
    return hub.call(wants_progress=True, **{"partials": "text", **members})


@virtual
async def test_the_first_content_is_shown_at_once_and_the_rest_at_most_ten_times_a_second() -> None:
    hub = DurableHub()
    call = calling(hub)
    call.says(delta("first"))
    assert messages(said(call)) == ["first"]
    times: list[float] = []
    reader = call.record.log.reader(lambda: times.append(LoopClock().now()), 0)
    reader.take()
    times.clear()
    for number in range(300):
        call.says(delta(f" {number}"))
        await sleep(0.01)
    await sleep(1)
    told = [event for event in reader.take() if isinstance(event, Progressed)]
    assert 15 <= len(told) <= 30
    assert " ".join(event.message or "" for event in told).split() == [str(number) for number in range(300)]
    values = [event.progress for event in told]
    assert values == sorted(set(values))


@virtual
async def test_the_last_content_before_a_silence_is_shown_soon() -> None:
    hub = DurableHub()
    call = calling(hub)
    call.says(delta("a"), delta("b"), Log("info", b"{}"), delta("c"))
    assert messages(said(call)) == ["a"]
    await sleep(0.3)
    assert messages(said(call)) == ["a", "bc"]


@virtual
async def test_values_lie_above_the_last_one_and_later_ones_of_the_server_pass_unchanged() -> None:
    hub = DurableHub()
    call = calling(hub)
    call.says(Progressed(3, 10), delta("a"))
    await sleep(1)
    call.says(Progressed(4, 10))
    first, text, last = (event for event in said(call) if isinstance(event, Progressed))
    assert (first, last) == (Progressed(3, 10), Progressed(4, 10))
    assert text == Progressed(3 + 1e-6, 10, message("a"), server_value=3, is_hubs=True)
    await sleep(10.5)
    assert said(call)[-1] == Progressed(4 + 1e-6, 10, message("a"), server_value=4, is_hubs=True), (
        "a heartbeat keeps it"
    )


@virtual
async def test_a_server_that_sends_messages_itself_gets_none_beside_them() -> None:
    hub = DurableHub()
    call = calling(hub)
    call.says(delta("a"), delta("b"), Progressed(1, None, message("own")), delta("c"))
    await sleep(1)
    call.says(Progressed(2), delta("d"))
    await sleep(1)
    assert messages(said(call)) == ["a", "own", None]


@virtual
async def test_who_is_not_to_have_messages_has_none() -> None:
    hub = DurableHub()
    call = calling(hub, partials=None)
    call.says(delta("a"))
    await sleep(1)
    assert messages(said(call)) == []


@virtual
async def test_heartbeats_of_a_call_without_any_output_say_how_long_it_runs() -> None:
    call = calling(DurableHub())
    await sleep(20.5)
    assert messages(said(call)) == ["running 10 s, no output yet", "running 20 s, no output yet"]


@virtual
async def test_a_heartbeat_repeats_a_message_once_and_then_names_it_as_the_last_one() -> None:
    call = calling(DurableHub())
    await sleep(1)
    call.says(Progressed(3, 10, message("compiling\n\x1b[1mcore\x1b[0m")))
    await sleep(30.5)
    own, *beats = (event for event in said(call) if isinstance(event, Progressed))
    assert own == Progressed(3, 10, message("compiling\n\x1b[1mcore\x1b[0m")), "as the server sent it"
    assert [beat.message for beat in beats] == [
        own.message,
        "running 21 s; last: compiling core",
        "running 31 s; last: compiling core",
    ]
    assert all(beat.is_hubs and beat.server_value == 3 and beat.total == 10 for beat in beats)
    call.says(Progressed(4, 10, message("linking")))
    await sleep(10.5)
    assert messages(said(call))[-2:] == ["linking", "linking"]


@virtual
async def test_the_words_of_a_heartbeat_are_one_line_of_at_most_200_characters() -> None:
    call = calling(DurableHub())
    call.says(Progressed(1, None, message("x\n" * 5000)))
    await sleep(20.5)
    words = messages(said(call))[-1]
    assert words is not None and words.startswith("running 20 s; last: x x") and words.endswith("…")
    assert len(words) == 200 and "\n" not in words


@virtual
async def test_partial_content_counts_as_the_last_message_until_its_attempt_fails() -> None:
    call = calling(DurableHub())
    call.says(delta("FAIL a\n"))
    await sleep(20.5)
    assert messages(said(call)) == ["FAIL a", "FAIL a", "running 20 s; last: FAIL a"]
    call.says(Attempt(2, "lost", 0.5))
    await sleep(10.5)
    assert messages(said(call))[-1] == "running 30 s, no output yet"


@virtual
async def test_who_is_not_to_have_messages_gets_heartbeats_without_words() -> None:
    call = calling(DurableHub(), partials=None)
    await sleep(10.5)
    call.says(Progressed(1, None, message("own")))
    await sleep(20.5)
    assert messages(said(call)) == [None, "own", "own", "own"]


@virtual
async def test_a_call_that_another_hub_continues_does_not_say_since_when_it_runs() -> None:
    pair = Pair(takes_up=True)
    call = calling(pair.one)
    call.record.continuable(HOW)
    await sleep(20.5)
    await pair.one.dies()
    await settle(lambda: bool(pair.two.taken_up))
    await sleep(20.5)
    (taken,) = pair.two.taken_up
    assert set(messages(said(taken))) == {"still running"}
    taken.says(Progressed(1, None, message("own")))
    await sleep(20.5)
    assert messages(said(taken))[-1] == "still running; last: own"
    taken.ends()


@virtual
async def test_messages_are_stored_as_they_were_sent() -> None:
    hub = DurableHub()
    call = calling(hub)
    call.says(delta("a"), delta("b"))
    await sleep(1)
    follower = await hub.follow(call.id)
    await sleep(0.1)
    assert [event for event in follower.events if isinstance(event, Progressed)] == [
        event for event in said(call) if isinstance(event, Progressed)
    ]


@pytest.mark.parametrize("form", ["line", "text"])
def test_no_piece_of_a_secret_begins_a_message_that_is_cut(form: PartialForm) -> None:
    secret = "Zq7Xv8Wk9Vj5Ug4Te3Sd2"
    learn([secret])
    for pad in range(len(secret)):
        (said,) = shown(form, f"{secret} " * 100 + "." * pad)
        assert said and "***" in said
        assert not [secret[at : at + 4] for at in range(len(secret) - 3) if secret[at : at + 4] in said], pad


def test_text_of_a_failed_attempt_is_not_shown() -> None:
    said = Transcript(100)
    for event in (Delta(b'[{"type":"text","text":"one"}]'), Attempt(2, "lost", 0.5), Reset(2, "lost", 2)):
        said.add(event)
    assert said.text == ""
    said.add(Delta(b'[{"type":"text","text":"two"}]'))
    assert said.text == "two"


def test_only_the_beginning_of_a_long_question_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def measured(text: str) -> str:
        sizes.append(len(text))
        return visible(text)

    monkeypatch.setattr(progress, "visible", measured)
    params = b'{"message":"%s"}' % (b"a \\u001b " * 100_000)
    text = progress.question_text(InputRequired("1", "elicitation/create", params))
    assert len(text) == 200 and "\x1b" not in text and sizes[0] <= 4000
