"""Plays the attacks on two hubs, one with the defaults and one that is strict, and notes what comes of each."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigs.attacks.cases import ATTACKS, Attack, Verdict
from rigs.attacks.outside import (
    ALTERED,
    hub_environment_is_read,
    login_runs_a_command,
    man_in_the_middle,
    neighbour_environment_is_read,
    public_hub_starts,
    writable_file_is_used,
)
from rigs.attacks.site import Site, entry, honest, mark, site, updated, write_files, write_scripts
from tests.upstreams.child import HttpUpstream

MIDDLE, LIVE = "middle", "midsession"
OUTSIDE = {
    "login": login_runs_a_command, "public": public_hub_starts, "writable": writable_file_is_used,
    "environment": hub_environment_is_read, "neighbour": neighbour_environment_is_read,
}  # fmt: skip
"""Attacks that need none of the two hubs, by their servers' names."""


@dataclass(frozen=True)
class Result:
    """What came of an attack: verdicts, how often each; and what was shown."""

    verdicts: Mapping[Verdict, int]
    findings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """An attack with the defaults, and strictly."""

    attack: Attack
    default: Result
    strict: Result


async def run_attacks(root: Path, attacks: Sequence[Attack] = ATTACKS) -> list[Outcome]:
    """Plays these, in their order. What they leave is under `root`."""
    outside = [one for one in attacks if one.server in OUTSIDE]
    default = {one.server: await _outside(root, one.server) for one in outside}
    strict = dict(default)  # no setting of a server is about these
    alone = [one for one in attacks if one.is_alone]
    together = [one for one in attacks if not one.is_alone and one not in outside]
    for name, results, is_strict in (("default", default, False), ("strict", strict, True)):
        for place, some in enumerate((together, *([one] for one in alone))):
            if some:
                results |= await _played(root / f"{name}{place}", some, strict=is_strict)
    return [Outcome(one, default[one.server], strict[one.server]) for one in attacks]


async def _outside(root: Path, server: str) -> Result:
    return Result({"passed on" if await OUTSIDE[server](root / server) else "stopped": 1})


async def _played(root: Path, attacks: Sequence[Attack], *, strict: bool) -> dict[str, Result]:
    """What comes of attacks whose servers stand behind one hub, by server."""
    async with _prepared(root, attacks, strict) as entries:
        async with site(root, entries, strict):
            pass  # what a person has trusted
        later = {one.server: one.later for one in attacks if one.later is not None}
        write_scripts(root, {server: script for server, script in later.items() if server != LIVE})
        async with site(root, entries, strict) as seen:
            if LIVE in later:
                write_scripts(root, {LIVE: later[LIVE]})
                await seen.call(f"{LIVE}_lookup", what="the weather")
                seen = await updated(seen, LIVE)
            return {one.server: await _result(seen, one) for one in attacks}


@asynccontextmanager
async def _prepared(root: Path, attacks: Sequence[Attack], strict: bool) -> AsyncIterator[dict[str, dict[str, Any]]]:
    """The entries of the bank and of the servers of these attacks, whose scripts are written."""
    write_files(root)
    write_scripts(root, {"bank": honest("bank"), **{one.server: one.first for one in attacks}})
    entries = {"bank": entry(root, "bank")}
    for one in attacks:
        entries[one.server] = {**entry(root, one.server), **(one.setting if strict else {})}
    if not any(one.server == MIDDLE for one in attacks):
        yield entries
        return
    async with HttpUpstream() as far, man_in_the_middle(far.url, root, tls=strict) as url:
        entries[MIDDLE] = {"url": url}
        yield entries


async def _result(seen: Site, attack: Attack) -> Result:
    findings = seen.findings(attack.server)
    if attack.counts:
        return _counted(seen, attack, findings)
    probe = attack.probe or _altered if attack.server == MIDDLE else attack.probe
    came = seen.sees(attack.server) if probe is None else await probe(seen, attack.server)
    if not came:
        return Result({"stopped": 1})
    kinds = frozenset(kind for found in findings.values() for kind in found)
    return Result({"shown" if kinds else "passed on": 1}, kinds)


def _counted(seen: Site, attack: Attack, findings: Mapping[str, set[str]]) -> Result:
    """One verdict for each poisoned tool."""
    poisoned = [one["name"] for one in (attack.later or attack.first)["tools"] if "{sink}" in str(one)]
    came = seen.tools_with_mark(attack.server)
    verdicts: Counter[Verdict] = Counter()
    for name in poisoned:
        is_there = f"{attack.server}_{name}" in came
        verdicts["stopped" if not is_there else "shown" if name in findings else "passed on"] += 1
    return Result(verdicts, frozenset(kind for found in findings.values() for kind in found))


async def _altered(seen: Site, server: str) -> bool:
    return mark(server) in await seen.call(f"{server}_echo", text=ALTERED)
