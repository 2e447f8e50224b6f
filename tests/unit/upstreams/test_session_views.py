"""The processes of single sessions: each session subscribes and lists at its own. On virtual time."""

import anyio
import anyio.abc
import msgspec

from mcp_hub.call import Call
from mcp_hub.types import Era, Kind
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.upstreams.test_scoped import Sessions, made, sessions, shared
from tests.unit.upstreams.toy_servers import Toys
from tests.unit.wire.raw_lines import group, within

URI = "toy://r"


def of(session: str) -> Call:
    return msgspec.structs.replace(request("x"), session=session, era=Era.HANDSHAKE)


def names(far: Sessions, session: str) -> list[str]:
    """The tools that a session is listed."""
    place = far.scoped.apart(of(session))
    assert place is not None
    lists = place.lists or far.scoped.snapshot()
    assert lists is not None
    return [msgspec.json.decode(raw)["name"] for raw in lists.lists[Kind.TOOL]]


def updates(far: Sessions, session: str) -> list[str]:
    """The updates that a session hears of."""
    place = far.scoped.apart(of(session))
    assert place is not None
    return [uri for uri, _ in far.scoped._listed.state.changes.notices((place.topic, URI), 0)]


@virtual
async def test_a_session_hears_of_updates_at_its_own_process_and_of_no_others() -> None:
    async with sessions() as far:
        for session in ("a", "b"):
            await far.scoped.subscribe(URI, of(session))
        assert far.toys.starts == 3, "a subscription starts the process that the calls of its session take"
        far.toys.wire.updates(URI)
        assert (updates(far, "a"), updates(far, "b")) == ([], [URI])
        assert await far.call("b") == "ok" and far.toys.starts == 3
        for session in ("a", "b"):
            far.scoped.unsubscribe(URI, of(session))
        assert far.scoped.lifecycle.hand_over(far.scoped.call).references == ()


@virtual
async def test_a_process_with_subscriptions_stays_and_the_next_one_watches_the_same() -> None:
    async with sessions(idle=100.0) as far:
        await far.scoped.subscribe(URI, of("s"))
        await anyio.sleep(300)
        assert far.toys.alive == 2
        before = len(updates(far, "s"))
        far.toys.wire.die()
        await anyio.sleep(10)
        assert far.toys.alive == 2 and len(updates(far, "s")) > before, "it may have changed unseen"
        far.scoped.unsubscribe(URI, of("s"))
        await anyio.sleep(300)
        assert far.toys.alive == 1


@virtual
async def test_subscriptions_of_the_predecessor_are_made_by_the_processes_of_their_sessions() -> None:
    async with sessions() as old, sessions() as far:
        await old.scoped.subscribe(URI, of("a"))
        far.scoped.lifecycle.inherit(old.scoped.lifecycle.hand_over(far.scoped.call))
        assert await far.call("b") == await far.call("a") == "ok"
        await anyio.sleep(1)
        far.toys.wire.updates(URI)
        assert (updates(far, "a"), updates(far, "b")) == ([URI], [])


@virtual
async def test_a_session_is_listed_what_its_own_process_lists() -> None:
    async with sessions() as far:
        for session in ("a", "b"):
            assert await far.call(session) == "ok"
        assert names(far, "a") == names(far, "b") == ["x"]
        version = far.scoped._listed.state.changes.version
        far.toys.wire.more.append("grown")
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(1)
        assert far.scoped._listed.state.changes.version > version
        assert (names(far, "a"), names(far, "b")) == (["x"], ["x", "grown"])
        far.toys.wire.more.clear()
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(1)
        assert names(far, "b") == ["x"]


@virtual
async def test_messages_for_a_session_come_from_its_own_process() -> None:
    async with sessions() as far:
        await far.call("s")
        far.toys.wire._peer.messages._observer.on_message("s", b"{}")  # type: ignore[union-attr]
        assert far.scoped._listed.state.changes.messages("s", 0) == [b"{}"]


@virtual
async def test_a_process_of_a_single_call_has_no_subscriptions_and_no_lists() -> None:
    toys = Toys()
    scoped = made(toys, scope="call")
    async with group() as tasks:
        tasks.start_soon(scoped.lifecycle.run)
        await anyio.sleep(1)
        assert scoped.apart(of("s")) is None
        await scoped.subscribe(URI, of("s"))
        assert toys.starts == 1, "it is watched by the listed process"
        await scoped.call(of("s"), Recorder())
        scoped.unsubscribe(URI, of("s"))


def attached(session: str) -> Call:
    """A call of a client of a background hub."""
    return msgspec.structs.replace(of(session), directory="/")


@virtual
async def test_clients_that_have_called_the_shared_process_stay_there_and_others_do_not() -> None:
    toys = Toys()
    async with sessions() as far, shared(toys) as (old, tasks):
        await old.call(attached("old"), Recorder())
        await old.subscribe(URI, attached("old"))
        await old.subscribe(URI, attached("new"))
        far.scoped.lifecycle.inherit(old.lifecycle.hand_over(far.scoped.call))
        tasks.start_soon(far.scoped.lifecycle.outlived, name="outlived")
        for session, calls in (("old", 2), ("new", 2), ("old", 3)):
            await far.scoped.call(attached(session), Recorder())
            assert len(toys.called) == calls
        assert [call.session for _, call in old.state.subscriptions.resources.references] == ["old"]
        toys.wire.more.append("grown")
        toys.wire.announces(Kind.TOOL)
        await anyio.sleep(1)
        place = far.scoped.apart(attached("old"))
        assert place is not None and place.topic == "toy" and place.lists is not None
        assert len(place.lists.lists[Kind.TOOL]) == 2
        assert [call.session for _, call in far.scoped._sides.resources.references] == ["new"]
        far.scoped.session_ended("old")
        await within(far.scoped.lifecycle.outlived())
        await far.scoped.call(attached("old"), Recorder())
        assert len(toys.called) == 3, "whoever comes back has another process"


@virtual
async def test_a_client_whose_turn_does_not_come_leaves_the_shared_process_with_its_subscriptions() -> None:
    toys = Toys(calls=1000.0)
    async with sessions() as far, shared(toys, takes_turns=True) as (old, tasks):
        for session in ("long", "other"):
            old.sessions.note(session)
            await old.subscribe(URI, attached(session))
        far.scoped.lifecycle.inherit(old.lifecycle.hand_over(far.scoped.call))
        tasks.start_soon(far.scoped.call, attached("long"), Recorder())
        await anyio.sleep(1)
        began = anyio.current_time()
        await far.scoped.call(attached("other"), Recorder())
        assert (len(toys.called), len(far.toys.called)) == (1, 1) and 9 < anyio.current_time() - began < 12
        assert [call.session for _, call in old.state.subscriptions.resources.references] == ["long"]
        assert [call.session for _, call in far.scoped._sides.resources.references] == ["other"]


@virtual
async def test_a_shared_process_that_is_gone_or_idle_is_left() -> None:
    for ends in ("dies", "idle"):
        toys = Toys()
        async with sessions(idle=100.0) as far, shared(toys) as (old, _):
            await old.call(attached("old"), Recorder())
            far.scoped.lifecycle.inherit(old.lifecycle.hand_over(far.scoped.call))
            if ends == "dies":
                toys.wire.die()
                await anyio.sleep(0.1)
            else:
                await anyio.sleep(300)
            await far.scoped.call(attached("old"), Recorder())
            assert far.scoped._predecessor._shared is None and len(far.toys.called) == 1


@virtual
async def test_calls_that_wait_for_their_turn_at_a_shared_process_move() -> None:
    toys = Toys(calls=100.0)
    toys_of_each = Toys(calls=100.0)
    scoped = made(toys_of_each)
    async with shared(toys, takes_turns=True) as (old, tasks):
        tasks.start_soon(old.call, attached("old"), Recorder())
        await anyio.sleep(5)
        tasks.start_soon(old.call, attached("new"), Recorder())
        tasks.start_soon(old.call, attached("old"), Recorder())
        await anyio.sleep(5)
        scoped.lifecycle.inherit(old.lifecycle.hand_over(scoped.call))
        tasks.start_soon(scoped.lifecycle.run)
        await anyio.sleep(5)
        assert (len(toys.called), len(toys_of_each.called)) == (2, 1)
