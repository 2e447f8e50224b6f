"""What `hub_calls` lists, and to whom."""

import msgspec
from msgspec.structs import replace

from mcp_hub.call import LOCAL_PRINCIPAL, StreamInfo
from mcp_hub.calls.hub_tools.own_tools import CALLS_TOOL
from mcp_hub.errors import UpstreamLost
from mcp_hub.events import Completed
from mcp_hub.masking import learn
from mcp_hub.protocol.meta import take_meta
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.stores.base import Change, Chunk
from mcp_hub.types import CallId, ClientKind, Era
from tests.unit.calls.virtual_time import sleep
from tests.unit.fronts.soft_hub import EARLY, SoftHub, delta, in_virtual_time, said
from tests.unit.fronts.task_hub import text

NONE = "No running or recent calls."
HERE = Caller(has_own_hub=True, client="claude-code", directory="/a")
BEGUN = b'{"v":1,"seq":1,"type":"start","data":{}}'


def lines(listing: str) -> list[str]:
    """A line for each call."""
    head, _, calls = listing.partition("\n\n")
    assert 'hub_calls with {"id":' in head
    return calls.splitlines()


def everybody(hub: SoftHub, kind: ClientKind = EARLY) -> SoftHub:
    hub.port.views._client_kind = lambda session: kind
    return hub


def session(id_: str, caller: Caller = HERE, **client_info: str) -> Session:
    return Session(id_, caller, Era.HANDSHAKE, "2025-11-25", client_info=dict(client_info))


async def begun(hub: SoftHub, by: Session) -> str:
    """The id of a running call of a session that is there."""
    hub.port.durable.connected.add(by.id)
    call = hub.port.call(by, "tools/call", {"name": msgspec.Raw(b'"slow"')}, take_meta({}))
    await sleep(1)
    return call.call.id


async def listing(hub: SoftHub, by: Session, **arguments: str) -> str:
    params = {"name": msgspec.Raw(b'"hub_calls"'), "arguments": msgspec.Raw(msgspec.json.encode(arguments))}
    call = hub.port.call(by, "tools/call", params, take_meta({}))
    await sleep(1)
    assert isinstance(call.record.log.ending, Completed)
    (block,) = msgspec.json.decode(call.record.log.ending.result)["content"]
    return str(block["text"])


async def listed(hub: SoftHub, by: Session) -> list[str]:
    """The ids of the calls that are listed."""
    shown = await listing(hub, by)
    return [] if shown == NONE else [line.split()[0] for line in lines(shown)]


@in_virtual_time
async def test_listing_has_a_line_for_each_call_newest_first(hub: SoftHub) -> None:
    await hub.hello()
    assert said(await hub.tool("hub_calls")) == NONE
    await hub.tool("slow")
    await hub.running.happens(delta("one\ntw"), delta("o\n\n"))
    first = hub.running.call.id
    await hub.tool("slow")
    await hub.running.says(1, "compiling\nthe core")
    second = hub.running
    await hub.tool("slow")
    await hub.running.happens(delta("much"))
    await hub.running.ends(text("all\nwell"))
    third = hub.running.call.id
    newest, middle, oldest = lines(said(await hub.tool("hub_calls", {"id": "", "after": 3})))
    assert newest == f"{third} slow: completed 0 s ago, after 0 s: well"
    assert middle == f"{second.call.id} slow: working for 0 s: the core"
    assert oldest == f"{first} slow: working for 0 s: two"
    await second.asks("sure?")
    assert f"{second.call.id} slow: input required for 0 s: " in said(await hub.tool("hub_calls"))


@in_virtual_time
async def test_listing_tells_endings_apart(hub: SoftHub) -> None:
    await hub.hello()
    for ends in ("cancel", "error", "fail"):
        await hub.tool("slow")
        await hub.running.happens(delta("x"))
        match ends:
            case "cancel":
                await hub.tool("hub_cancel", {"stream": hub.running.call.id})
            case "error":
                await hub.running.ends(b'{"content":[{"type":"text","text":"no disk"}],"isError":true}')
            case _:
                await hub.running.fails(UpstreamLost("gone"))
        await sleep(1)
    failed, wrong, cancelled = (line.partition(" slow: ")[2] for line in lines(said(await hub.tool("hub_calls"))))
    assert failed.startswith("failed 0 s ago, after 0 s: gone")
    assert wrong == "tool error 0 s ago, after 0 s: no disk"
    assert cancelled == "cancelled 0 s ago, after 0 s: cancelled by the client (hub_cancel)"


@in_virtual_time
async def test_last_line_is_short_and_masked(hub: SoftHub) -> None:
    await hub.hello()
    await hub.tool("slow")
    learn(["hunter2-hunter2"])
    await hub.running.happens(delta("x" * 300 + " hunter2-hunter2\x1b[1m"))
    (line,) = lines(said(await hub.tool("hub_calls")))
    shown = line.partition(" s: ")[2]
    assert len(shown) == 200 and shown.startswith("…x") and "hunter2" not in shown and "\x1b" not in shown


@in_virtual_time
async def test_listing_has_twenty_calls_of_tools_with_their_ages(hub: SoftHub) -> None:
    await hub.hello()
    kept: list[object] = []
    for number in range(25):
        method = "resources/read" if number == 24 else "tools/call"
        row = StreamInfo(CallId(f"st_{number}"), "me", "other", "git", method, "t", number, number, last=1)
        hub.streams.store.log.create(row, Chunk(1, (BEGUN,)), kept.append)
        end = Chunk(2, (b'{"v":1,"seq":2,"type":"end","data":{"outcome":"ok","result":{"content":[]}}}',))
        hub.streams.store.log.append(row.id, 1, end, Change(number + 7200.0 * number, "completed"), kept.append)
    assert kept == [None] * 50
    shown = lines(said(await hub.tool("hub_calls")))
    assert [line.split()[0] for line in shown] == [f"st_{number}" for number in range(23, 3, -1)]
    assert shown[-1].endswith(" d ago, after 8 h")


@in_virtual_time
async def test_token_sees_all_of_its_own_calls_and_no_other(hub: SoftHub) -> None:
    everybody(hub)
    mine, yours = session("a", Caller("me")), session("b", Caller("you"))
    first, second = await begun(hub, mine), await begun(hub, yours)
    assert await listed(hub, mine) == await listed(hub, session("c", Caller("me"))) == [first]
    assert await listed(hub, yours) == [second]
    assert "Unknown stream" in await listing(hub, yours, id=first)


@in_virtual_time
async def test_local_session_sees_its_own_calls_and_those_of_ended_ones_alike(hub: SoftHub) -> None:
    everybody(hub)
    mine, other = session("a"), session("b")
    first, second = await begun(hub, mine), await begun(hub, other)
    assert await listed(hub, mine) == [first] and await listed(hub, other) == [second]
    hub.port.end(other)
    assert await listed(hub, mine) == [second, first]
    for stranger in (
        session("c", replace(HERE, client="codex")),
        session("d", replace(HERE, directory="/b")),
        session("e", Caller()),
        session("f", Caller(has_own_hub=True, directory="/a")),
    ):
        assert await listed(hub, stranger) == [], "by its id only"
        assert "is being cancelled" not in await listing(hub, stranger)
    named = Caller(has_own_hub=True, directory="/a")
    assert await listed(hub, session("g", named, name="claude-code")) == [second], "its kind by its own word"


@in_virtual_time
async def test_local_client_without_origin_sees_its_session_alone(hub: SoftHub) -> None:
    everybody(hub)
    unnamed = Caller(has_own_hub=True, directory="/a")
    first = session("a", unnamed)
    await begun(hub, first)
    hub.port.end(first)
    assert await listed(hub, session("b", unnamed)) == [], "nobody knows whether it is the same kind of client"


@in_virtual_time
async def test_call_of_an_ended_hub_is_listed_and_read(hub: SoftHub) -> None:
    everybody(hub, ClientKind(hub_tools=(CALLS_TOOL,)))
    mine = session("a")
    row = StreamInfo(
        CallId("st_R"), LOCAL_PRINCIPAL, "in_gone", "git", "tools/call", "slow", 1, 2, last=1, info=mine.origin,
        session="x",
    )  # fmt: skip
    kept: list[object] = []
    hub.streams.store.log.create(row, Chunk(1, (BEGUN,)), kept.append)
    end = b'{"v":1,"seq":2,"type":"end","data":{"outcome":"ok","result":{"content":[{"type":"text","text":"it"}]}}}'
    hub.streams.store.log.append(row.id, 1, Chunk(2, (end,)), Change(3.0, "completed"), kept.append)
    assert kept == [None, None]
    assert await listed(hub, mine) == ["st_R"] and await listing(hub, mine, id="st_R") == "it"


@in_virtual_time
async def test_client_without_a_deadline_waits_for_a_minute_and_reads_of_no_hub_cancel(hub: SoftHub) -> None:
    everybody(hub, ClientKind(hub_tools=(CALLS_TOOL,)))
    await hub.hello()
    await hub.tool("slow")
    await hub.running.happens(delta("out\n"))
    waiting = await hub.tool("hub_calls", {"id": hub.running.call.id})
    await sleep(53)
    assert not waiting.is_answered
    await sleep(1)
    assert "Still running" in said(waiting) and said(waiting).endswith("New output:\nout\n")
    assert "hub_cancel" not in said(waiting)
    again = await hub.tool("hub_calls", {"id": hub.running.call.id})
    await hub.running.ends(text("done"))
    assert said(again) == "done"
