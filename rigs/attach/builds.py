"""Clients and hubs of different builds: copies of the package with another version in it."""

import json
import re
import shutil
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path

from rigs.attach.deaths import begun, ended_once
from rigs.attach.place import ROOT, Place, echoed, expect
from rigs.attach.trial import Trial

VERSIONS = {"old": "0.0.9", "same": "0.1.0", "new": "9.0.0"}


def build(around: Path, version: str) -> Path:
    """The folder of a package with this version, in the folder `around`."""
    folder = around / f"build-{version}"
    if not folder.exists():
        shutil.copytree(ROOT / "mcp_hub", folder / "mcp_hub")  # with what is compiled: it fits, but for one module
        module = folder / "mcp_hub" / "__init__.py"
        text, count = re.subn(r'__version__ = "[^"]*"', f'__version__ = "{version}"', module.read_text())
        assert count == 1, "the version is not where it was"
        module.write_text(text)
    return folder


async def matrix(trial: Trial) -> None:
    """Each build of a client meets each build of a hub that is idle, and one that is busy."""
    for hub, client, is_busy in product(VERSIONS.values(), VERSIONS.values(), (False, True)):
        if not trial.is_short or (hub, client) == (VERSIONS["old"], VERSIONS["new"]):
            async with trial.place(servers=("a",)) as place:
                await _meet(trial, place, hub, client, is_busy=is_busy)


async def _meet(trial: Trial, place: Place, first: str, second: str, *, is_busy: bool) -> None:
    case = f"client {second} at a hub {first} that is {'busy' if is_busy else 'idle'}"
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(place.joined(code=build(trial.folder, first)))
        old = place.hub()
        expect(place.record()["build"].startswith(first), f"{case}: the hub is of build", place.record())
        call = await begun(place, one, "busy", seconds=4) if is_busy else None
        if not is_busy:
            await one.close()
        two = await stack.enter_async_context(place.joined("--attach", "auto", code=build(trial.folder, second)))
        if second > first and is_busy:
            newer = place.hubs() - {old}
            expect(old in place.hubs(), f"{case}: the busy hub was replaced", place.hubs())
            expect(len(newer) == 1 and two.pid not in place.owners("a"), f"{case}: no hub beside it", place.hubs())
            await stack.enter_async_context(place.joined("--attach", "auto", code=build(trial.folder, second)))
            expect(place.hubs() == {old, *newer}, f"{case}: newer clients do not share one hub", place.hubs())
            await _is_named(place, one.pid, old, case)
        elif second > first:
            await place.gone([old])
            expect(place.record()["build"].startswith(second), f"{case}: not replaced", place.record())
            place.hub()
        else:
            expect(place.hub() == old, f"{case}: not used", place.hubs())
        if call is not None:
            expect("result" in await ended_once(one, call), f"{case}: the call was lost")
        await echoed(two, case)


async def _is_named(place: Place, client: int, hub: int, case: str) -> None:
    """`status` names the client that keeps the older hub."""
    shown = json.loads((await place.command("status", "--json")).stdout)
    kept_by = [own["process"] for found in shown["hubs"] if found["pid"] == hub for own in found["clients"]]
    expect(kept_by == [client], f"{case}: status does not name the client that keeps the older hub", shown)


async def alternate(trial: Trial) -> None:
    """An old and a new client by turns retire one hub at most: never each other's for ever."""
    async with trial.place(servers=("a",)) as place:
        seen: set[int] = set()
        for turn in range(trial.many(3, 20)):
            version = VERSIONS["old" if turn % 2 == 0 else "new"]
            async with place.joined("--attach", "auto", code=build(trial.folder, version)):
                seen |= place.hubs()
        expect(len(seen) <= 2, "hubs of two builds replaced each other", seen)
        expect(place.record()["build"].startswith(VERSIONS["new"]), "the older one won", place.record())


async def skew_is_seen(trial: Trial) -> None:
    """Both builds stand in `status` and in the handshake's answer."""
    old, new = VERSIONS["old"], VERSIONS["new"]
    async with trial.place(servers=("a",)) as place, place.client(code=build(trial.folder, new)) as first:
        await first.initialize()
        async with place.client(code=build(trial.folder, old)) as client:
            info = str((await client.initialize())["result"])
            expect(old in info and new in info, "serverInfo does not have both builds", info)
            shown = (await place.command("status")).stdout
            expect(new in shown and VERSIONS["same"] in shown, "status does not have both builds", shown)
