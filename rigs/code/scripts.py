"""Scripts of twenty to forty calls that keep account of what they were told, and what that account must show.

A script knows three lists: keys whose write was confirmed, keys whose outcome is unknown, and keys that it gave up. It
uses the time, random numbers and the order in which a `gather` ends, none of which may change what was written.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HEAD = """\
import asyncio
import random
import time

ok = []
unknown = []
refused = []
looks = []


async def write(key: str):
    try:
        answer = await count_add(key=key)
        ok.append(answer["key"])
    except OutcomeUnknown:
        unknown.append(key)
    except ToolError as problem:
        refused.append([key, str(problem)])


async def look(key: str):
    try:
        answer = await count_look(key=key)
        looks.append(answer["count"])
    except ToolError:  # its server was killed
        looks.append(-1)


began = time.time()
"""
_TAIL = '{"ok": ok, "unknown": unknown, "refused": refused, "looks": len(looks), "forward": time.time() >= began}\n'


@dataclass
class Script:
    """A script with the keys that it writes, each once, and the number of its looks.

    `counted`: how many of them were written a moment after its cancel; None if that is not known.
    """

    code: str
    keys: Sequence[str]
    looks: int
    counted: int | None = None
    is_cancelled: bool = False


def script(number: int, rng: random.Random) -> Script:
    """A script of twenty to forty calls, alone and together, with pauses and decisions by chance between them."""
    lines, looks = [_HEAD], 0
    keys: list[str] = []
    left = rng.randint(20, 40)

    def key() -> str:
        keys.append(f"{number}-{len(keys)}-{rng.getrandbits(32):08x}")
        return keys[-1]

    while left > 0:
        kind = rng.random()
        if kind < 0.35:
            lines.append(f'await write("{key()}")\n')
            left -= 1
        elif kind < 0.5:
            lines.append(f'await look("{rng.choice(keys) if keys else number}")\n')
            looks, left = looks + 1, left - 1
        elif kind < 0.75:
            many = rng.randint(2, 6)
            both = [
                f'look("{rng.choice(keys)}")' if keys and rng.random() < 0.4 else f'write("{key()}")'
                for _ in range(many)
            ]
            looks += sum(call.startswith("look") for call in both)
            lines.append(f"await asyncio.gather({', '.join(both)})\n")
            left -= many
        elif kind < 0.85:
            lines.append(f"await asyncio.sleep({rng.uniform(0.01, 0.1):.3f})\n")
        elif kind < 0.95:
            first, other = key(), key()
            lines.append(f'pair = ["{first}", "{other}"]\n')
            lines.append("if random.random() < 0.5:\n    pair = pair[::-1]\n")
            lines.append("for name in pair:\n    await write(name)\n")
            left -= 2
        else:
            lines.append(f'print("{left} to go")\n')
    return Script("".join([*lines, _TAIL]), keys, looks)


def judged(script: Script, account: Mapping[str, Any], counted: Mapping[str, int]) -> list[str]:
    """What is wrong with the account that a script gave, by what the server counted."""
    faults = []
    for key in script.keys:
        told = (
            account["ok"].count(key),
            account["unknown"].count(key),
            len([r for r in account["refused"] if r[0] == key]),
        )
        count = counted.get(key, 0)
        if sum(told) != 1:
            faults.append(f"{key} is in {sum(told)} lists")
        elif told[0] and count != 1:
            faults.append(f"{key} was confirmed and counted {count} times")
        elif told[2] and count:
            faults.append(f"{key} was refused and counted {count} times")
    if account["looks"] != script.looks:
        faults.append(f"{account['looks']} looks of {script.looks}")
    if not account["forward"]:
        faults.append("its time went backwards")
    return faults


def written(script: Script, counted: Mapping[str, int]) -> int:
    """How many writes of a script the server saw."""
    return sum(counted.get(key, 0) for key in script.keys)


def doubled(script: Script, counted: Mapping[str, int]) -> list[str]:
    """Writes of a script that the server saw more than once, whatever became of the script."""
    return [f"{key} was counted {counted[key]} times" for key in script.keys if counted.get(key, 0) > 1]
