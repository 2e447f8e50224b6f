"""`python -m tests.hostile_clients`: what bad clients are told at every door, as a table; 1 if any of it is not so.

Below it 5,000 calls at once, on a hub with its usual limits but `--running` and `--waiting`.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import anyio

from tests.hostile_clients.cases import CASES, EXPECTED, flooded, site, told
from tests.hostile_clients.doors import DOORS
from tests.interaction.fronts import stdio_hub
from tests.upstreams.launch import argv, servers_yaml


async def main(count: int, running: int, waiting: int) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as root:
        async with site(Path(root)) as where:
            print("| case | " + " | ".join(DOORS) + " |\n" + "| --- " * (len(DOORS) + 1) + "|")
            for case in CASES:
                found = {door: await told(where, case, door) for door in DOORS}
                wrong += found != EXPECTED[case]
                print(f"| {case} | " + " | ".join(found.values()) + (" |" if found == EXPECTED[case] else " | WRONG"))
            print(f"\nmeanwhile {where.answered} calls of another client, all answered")
    limits = {"running_calls": running, "waiting_calls": waiting}
    with tempfile.TemporaryDirectory() as root:
        text = servers_yaml({"a": argv(name="a")}, hub={"limits": limits})
        async with stdio_hub(text, Path(root)) as client:
            await client.initialize()
            await client.request("tools/list")
            print(f"{count} calls at once: {dict(await flooded(client, count))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.hostile_clients", description=__doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=256)
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.calls, given.running, given.waiting))
