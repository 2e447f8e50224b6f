"""Many start at once, and what the first one brings along does not stick."""

import os
import shlex
import stat
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from rigs.attach.desktop import in_place_of
from rigs.attach.place import Place, echoed, environment, expect, greeted
from rigs.attach.trial import Trial
from tests.upstreams.child import until
from tests.upstreams.stdio_client import StdioClient


async def many_at_once(trial: Trial) -> None:
    """Fifty clients that start in the same moment share one hub and one set of servers, and nothing crosses."""
    count = trial.many(12, 50)
    async with trial.place() as place, AsyncExitStack() as stack:
        await _all_join(place, stack, count, calls=trial.many(2, 5))
        place.hub()
        expect(place.owners() == {place.hub()}, "servers are run by others than the hub", place.owners())
        found = [place.starts(name) for name in ("a", "b")]
        expect(found == [1, 1], "each server should have started once", found)
        trial.figures.append(f"{count} clients at once: 1 hub, {len(place.servers())} server processes")


async def two_starters(trial: Trial) -> None:
    """Two that start in the same moment, again and again with nothing running: never two hubs."""
    for _ in range(trial.many(2, 15)):
        async with trial.place(servers=("a",)) as place, AsyncExitStack() as stack:
            await _all_join(place, stack, 2, calls=1)
            place.hub()
            expect(place.starts("a") == 1, "the server should have started once", place.starts("a"))


async def _all_join(place: Place, stack: AsyncExitStack, count: int, calls: int) -> None:
    clients = [await stack.enter_async_context(place.client()) for _ in range(count)]

    async def one(client: StdioClient, number: int) -> None:
        await greeted(client, seconds=60)
        for call in range(calls):
            for server in place.settings["servers"]:
                await echoed(client, f"{number} {call} {server}", server)

    async with anyio.create_task_group() as tasks:
        for number, client in enumerate(clients):
            tasks.start_soon(one, client, number)


async def first_caller(trial: Trial) -> None:
    """Working directory, PATH and other variables of the first client are not those of the servers."""
    async with trial.place(servers=("a",)) as place:
        folder = place.root / "first"
        folder.mkdir()
        async with place.joined(env={"ONLY_FIRST": "1", "PATH": f"{folder}:{os.environ['PATH']}"}, cwd=folder):
            (server,) = place.servers("a")
            hub = place.hub()
            for pid in (hub, server.pid):
                expect(os.readlink(f"/proc/{pid}/cwd") != str(folder), f"{pid} keeps the first client's folder busy")
                expect("ONLY_FIRST" not in environment(pid), f"{pid} has a variable of the first client")
            async with place.joined(env={"PATH": "/usr/bin:/bin"}, cwd=place.root):
                expect(place.hub() == hub, "a second client with another PATH did not join")


async def other_path(trial: Trial) -> None:
    """A server that only the second client's PATH has, and one that only the first one's has: both start."""
    async with trial.place(servers=("a", "b")) as place:
        paths = {}
        for server in ("a", "b"):
            tool = place.root / f"bin-{server}" / f"start-{server}"
            tool.parent.mkdir()
            line = place.settings["servers"][server]
            tool.write_text(f"#!/bin/sh\nexec {shlex.join([line['command'], *line['args']])}\n")
            tool.chmod(0o755)
            place.change(server, command=tool.name, args=[])
            paths[server] = {"PATH": f"{tool.parent}:/usr/bin:/bin"}
        async with place.client(env=paths["a"]) as one, place.client(env=paths["b"]) as two:
            for client, server in ((one, "a"), (two, "b"), (two, "a")):
                if not client.transcript:
                    await greeted(client)
                await echoed(client, f"{server} by its PATH", server)


async def own_session(trial: Trial) -> None:
    """The hub has a session of its own, holds no output of its first client, and its files are the user's alone."""
    async with trial.place(servers=("a",)) as place:
        async with place.joined() as client:
            hub, session = place.hub(), os.getsid(client.pid)
            expect(os.getsid(hub) != session, "the hub is in the client's session")
            await _has_none_of(hub, client.pid)
            for path, mode in _modes(place).items():
                expect(mode & 0o077 == 0, f"others may use {path}", oct(mode))
            client.kill()
            await client.wait_closed()
        async with place.joined():
            expect(place.hub() == hub, "the hub went with its first client")


async def _has_none_of(hub: int, client: int) -> None:
    def pipes(pid: int) -> set[str]:
        found = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
        return {one for one in found if one.startswith("pipe:")}

    theirs = {os.readlink(f"/proc/{client}/fd/{number}") for number in (0, 1, 2)}
    await until(lambda: not pipes(hub) & theirs, 5)


def _modes(place: Place) -> dict[Path, int]:
    (scope,) = place.scopes()
    return {path: stat.S_IMODE(path.stat().st_mode) for path in [scope, *scope.iterdir()]}


async def control_group(trial: Trial) -> None:
    """Where there is a systemd of the user, the hub is started in a scope of its own; one that fails is no obstacle."""
    for program in (_SCOPE, _NO_BUS):
        async with trial.place(servers=("a",)) as place:
            tool, asked = place.root / "systemd-run", place.root / "asked"
            tool.write_text(program.format(asked=asked))
            tool.chmod(0o755)
            (place.root / "run" / "systemd").mkdir()
            (place.root / "run" / "systemd" / "private").touch()
            async with place.joined(wrap=lambda line, tool=tool: in_place_of("/usr/bin/systemd-run", tool, line)):
                place.hub()
                given = asked.read_text().split()
                expect({"--user", "--scope"} <= {*given}, "not asked for a scope of the user", given)


_SCOPE = """#!/bin/sh
echo "$@" > {asked}
while [ "$1" != "--" ]; do shift; done
shift
exec "$@"
"""
_NO_BUS = """#!/bin/sh
echo "$@" > {asked}
echo "Failed to connect to bus" >&2
exit 1
"""
