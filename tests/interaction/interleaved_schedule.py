"""What clients do at once, drawn at random: a `Life` for each session that a client has, one after the other."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.interaction.interleaving import NONCE, Plan
from tests.upstreams.messages import Message

WEIGHTS = {
    "ask_form": (2, 1),
    "ask_two": (1, 1),
    "ask_then_wait": (1, 1),
    "log": (1, 4),
    "progress": (2, 2),
    "slow": (1, 3),
    "echo": (1, 1),
    "touch": (1, 1),
    "add_tool": (1, 1),
    "remove_tool": (1, 1),
}
"""Of each tool, at the handshake server and at the modern one."""
MANY = 3000
"""Log messages: some tenths of a second."""
Turn = tuple[str, Any]
"""One after the other: `subscribe` and `unsubscribe` a URI, `level` (handshake), `away` so many seconds, `pause`."""


@dataclass(frozen=True)
class Life:
    """The calls of a session, all at once, and its turns beside them; after `vanish` seconds it is simply gone."""

    era: str
    calls: tuple[Plan, ...]
    turns: tuple[Turn, ...]
    vanish: float | None = None


def draw(random: random.Random, servers: tuple[str, str], uris: Sequence[str]) -> list[list[Life]]:
    """The lives of two or three clients, of one era or the other; the last life of each lasts to the end.

    `servers` are one of the handshake era and a modern one.
    """
    eras = [HANDSHAKE, HANDSHAKE, random.choice([HANDSHAKE, MODERN, MODERN])][: random.choice([2, 3, 3])]
    random.shuffle(eras)
    schedule = []
    for era in eras:
        lives = [_life(random, era, servers, uris)]
        if random.random() < 0.15:
            first = _life(random, era, servers, uris)
            vanish = random.choice([None, random.uniform(0.05, 0.3)])
            lives.insert(0, Life(era, first.calls, first.turns, vanish))
        schedule.append(lives)
    return schedule


def _life(random: random.Random, era: str, servers: tuple[str, str], uris: Sequence[str]) -> Life:
    calls = tuple(_plan(random, era, servers, uris) for _ in range(random.randint(2, 7)))
    turns = [_turn(random, era, uris) for _ in range(random.randint(1, 6))]
    if era == HANDSHAKE and random.random() < 0.5:
        turns.insert(0, ("level", "debug"))  # before that a modern server says nothing
    return Life(era, calls, tuple(turns))


def _plan(random: random.Random, era: str, servers: tuple[str, str], uris: Sequence[str]) -> Plan:
    server = random.choice([*servers, servers[0]])
    tool, arguments = _call(random, servers, server, uris)
    cancel = drop = None
    # what is given up at a server that asks keeps everybody else waiting for 5 s
    if arguments.get("n") == MANY and server == servers[1] and random.random() < 0.7:
        cancel = random.uniform(0, 0.03)  # the server goes on, while others call it
    elif random.random() < (0.2 if server == servers[1] else 0.03):
        cancel = random.uniform(0, 0.15)
    elif era == HANDSHAKE and random.random() < 0.15:
        drop = random.uniform(0.01, 0.15)
    level = random.choice([None, "debug", "debug", "error"]) if era == MODERN else None
    late = random.choice([0, 0, random.uniform(0, 0.2)])
    return Plan(tool, server, arguments, late, cancel, drop, random.uniform(0, 0.1), level)


def _call(random: random.Random, servers: tuple[str, str], server: str, uris: Sequence[str]) -> tuple[str, Message]:
    tools = list(WEIGHTS)
    tool = random.choices(tools, [WEIGHTS[name][servers.index(server)] for name in tools])[0]
    asking = {"nonce": NONCE, "delay": random.choice([0, 0, 0.01, 0.05])}
    name = {"name": f"added_{random.randint(1, 3)}"}
    level, count = random.choice(["debug", "info", "error"]), random.choice([1, 50, MANY, MANY])
    arguments: dict[str, Message] = {
        "ask_form": asking,
        "ask_two": {**asking, "kinds": ["form", "form"]},
        "ask_then_wait": {**asking, "seconds": random.choice([0.01, 0.1])},
        "log": {"level": level, "data": NONCE, "n": count},
        "progress": {"nonce": NONCE, "n": random.randint(1, 8), "delay": random.choice([0, 0.002, 0.01])},
        "slow": {"nonce": NONCE, "seconds": random.choice([0.01, 0.3])},
        "echo": {"nonce": NONCE, "text": "x"},
        "touch": {"uri": random.choice([uri for uri in uris if f"/{server}/" in uri])},
        "add_tool": name,
        "remove_tool": name,
    }
    return tool, arguments[tool]


def _turn(random: random.Random, era: str, uris: Sequence[str]) -> Turn:
    turns: list[Turn] = [
        ("subscribe", random.choice(uris)),
        ("subscribe", random.choice(uris)),
        ("unsubscribe", random.choice(uris)),
        ("pause", random.uniform(0, 0.1)),
        ("away", random.uniform(0, 0.1)) if era == HANDSHAKE else ("pause", 0.01),
        ("level", random.choice(["debug", "info", "error", "emergency"])) if era == HANDSHAKE else ("pause", 0.01),
    ]
    return random.choice(turns)
