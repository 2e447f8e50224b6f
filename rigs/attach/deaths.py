"""What happens to calls and clients when anything dies, stops or leaves."""

import os
import signal
from contextlib import AsyncExitStack

import anyio

from rigs.attach.place import Fault, Place, echoed, expect, greeted, typed
from rigs.attach.trial import Trial
from tests.upstreams.child import until
from tests.upstreams.launch import received
from tests.upstreams.messages import Id, Message
from tests.upstreams.stdio_client import StdioClient

_ENDS = 30.0
"""Seconds in which a call has to have an answer, whatever died."""


async def hub_killed(trial: Trial) -> None:
    """SIGKILL of the hub in the middle of calls: each has one answer, the next calls work, all in one new hub."""
    for round in range(trial.many(1, 5)):
        async with trial.place() as place, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(place.joined()) for _ in range(3)]
            ids = [await begun(place, client, f"{round} {number}") for number, client in enumerate(clients)]
            hub = place.hub()
            os.kill(hub, signal.SIGKILL)
            for client, id in zip(clients, ids, strict=True):
                await ended_once(client, id)
            for client in clients:
                for server in ("a", "b"):
                    await echoed(client, f"after {client.pid}", server)
            await place.gone([hub])
            expect(place.hub() != hub, "the killed hub is said to run")
            expect(place.owners() <= {place.hub()}, "a server of the killed hub, or of a private one", place.owners())
            left = [client.pid for client in clients if client.returncode is not None]
            expect(not left, "clients were ended with the hub", left)


async def hub_dies_each_time(trial: Trial) -> None:
    """A background hub that is killed as often as it comes takes no client along: that gets a hub of its own."""
    async with trial.place(servers=("a",), hub={"attach": "auto"}) as place, place.joined("--attach", "auto") as client:
        killed: set[int] = set()
        with anyio.move_on_after(trial.many(4, 15)):
            while True:
                found = place.processes()
                for pid in place.hubs() & found.keys():
                    if found[pid].parent not in place.clients:  # not one of the client's own
                        os.kill(pid, signal.SIGKILL)
                        killed.add(pid)
                await anyio.sleep(0.02)
        await place.gone(killed)
        await ended_once(
            client, await client.send_request("tools/call", {"name": "a_echo", "arguments": {"text": "x"}})
        )
        await echoed(client, "still here")
        trial.figures.append(f"{len(killed)} hubs killed, one after the other")


async def begun(place: Place, client: StdioClient, nonce: str, seconds: float = 2.0) -> Id:
    """The id of a call that server `a` has begun and that takes so long."""
    arguments = {"seconds": seconds, "nonce": nonce}
    id = await client.send_request("tools/call", {"name": "a_slow", "arguments": arguments})

    def arrived() -> bool:
        return any(m["params"]["arguments"].get("nonce") == nonce for m in received(place.journal("a"), "tools/call"))

    await until(arrived)
    return id


async def ended_once(client: StdioClient, id: Id) -> Message:
    """The one answer to a call: a result, or an error with a code. Raises `Fault`."""
    try:
        answer = await client.response(id, seconds=_ENDS)
    except TimeoutError:
        raise Fault(f"a call has no answer after {_ENDS:g} s; stderr: {client.stderr[-500:]}") from None
    expect(typed(answer), "an error without a code", answer)
    await anyio.sleep(0.1)  # in which a second one would come
    answers = [m for m in client.transcript if m.get("id") == id and "method" not in m]
    expect(len(answers) == 1, "not one answer", answers)
    return answer


async def client_killed(trial: Trial) -> None:
    """A client's process group gets SIGKILL: its call goes on, and the next client reads the result."""
    async with trial.place() as place, place.joined() as other:
        hub = place.hub()
        async with place.joined() as client:
            progress = {"name": "a_progress", "arguments": {"n": 8, "delay": 0.2, "nonce": "orphan"}}
            await client.send_request("tools/call", {**progress, "_meta": {"progressToken": "p"}})
            await client.wait_for(lambda m: m.get("method") == "notifications/progress")
            client.kill()
        await echoed(other, "not disturbed")
        expect(place.hub() == hub and place.starts("a") == 1, "the hub or the server went with the client")
        async with place.joined():
            listed = (await place.command("streams", "--json")).stdout
            stream = listed.partition('"st_')[2].partition('"')[0]
            expect(bool(stream), "the call is not listed", listed[:300])
            done = await place.command("resume", f"st_{stream}")
            expect(done.returncode == 0 and "orphan" in done.stdout, "the result is not there", done)


async def stopped_hub(trial: Trial) -> None:
    """A hub that does not answer (SIGSTOP) is waited for: however many come meanwhile, none starts another one."""
    async with trial.place(servers=("a",)) as place, place.joined(), AsyncExitStack() as stack:
        hub = place.hub()
        os.kill(hub, signal.SIGSTOP)
        late = [await stack.enter_async_context(place.client()) for _ in range(trial.many(3, 20))]
        try:
            async with anyio.create_task_group() as tasks:
                for client in late:
                    tasks.start_soon(greeted, client, 60)
                await anyio.sleep(trial.many(2, 8))
                said = [message for client in late for message in client.transcript]
                expect(not said, "answered while the hub was stopped", said)
                expect(place.hubs() == {hub}, "others were started", place.hubs())
                os.kill(hub, signal.SIGCONT)
        finally:
            os.kill(hub, signal.SIGCONT)
        for client in late:
            await echoed(client, f"late {client.pid}")
        expect(place.hub() == hub and place.owners() == {hub}, "not the same hub", place.owners())


async def nothing_left(trial: Trial) -> None:
    """After `mcp-hub stop`, and after the idle time, nothing of a hub is left: no process, socket or record."""
    async with trial.place() as place:
        async with place.joined():
            hub = place.hub()
        done = await place.command("stop")
        expect(done.returncode == 0, "stop failed", done)
        await place.gone()
        _is_clean(place)
        async with place.joined():
            expect(place.hub() != hub, "the same hub after stop")


async def nothing_left_when_idle(trial: Trial) -> None:
    """A client that was killed has left: with the idle time over, and no call, the hub and its servers end."""
    async with trial.place(hub=IDLE) as place:
        async with place.joined() as client:
            id = await begun(place, client, "last", seconds=3)
            expect(bool(id), "no call")
            client.kill()
        await anyio.sleep(1.5)
        expect(bool(place.hubs()), "the hub ended before the last call")
        await place.gone()
        _is_clean(place)


IDLE = {"attach_idle": "1s"}
"""A hub that ends soon after its last client and call."""


def _is_clean(place: Place) -> None:
    left = [path for scope in place.scopes() for path in scope.iterdir()]
    stale = [path for path in left if path.name == "hub.json" or path.is_socket()]
    expect(not stale, "left in the folder", stale)
