"""`python -m rigs.hostile_clients`: what bad clients are told at every door, as a table; 1 if any of it is not so.

Below it 5,000 calls at once, on a hub with its usual limits but `--running` and `--waiting`.
"""

import sys
import tempfile
from pathlib import Path

import anyio

from rigs.hostile_clients.cases import CASES, EXPECTED, flooded, site, told
from rigs.hostile_clients.doors import DOORS
from rigs.report import arguments, reported
from tests.interaction.fronts import stdio_hub
from tests.upstreams.launch import argv, servers_yaml


async def main(count: int, running: int, waiting: int) -> int:
    lines = ["| case | " + " | ".join(DOORS) + " |", "| --- " * (len(DOORS) + 1) + "|"]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as root:
        async with site(Path(root)) as where:
            for case in CASES:
                found = {door: await told(where, case, door) for door in DOORS}
                lines.append(f"| {case} | " + " | ".join(found.values()) + " |")
                wrong += [
                    f"{case} at {door}: {found[door]}, not {EXPECTED[case][door]}"
                    for door in DOORS
                    if found[door] != EXPECTED[case][door]
                ]
            lines.append(f"meanwhile {where.answered} calls of another client, all answered")
    limits = {"running_calls": running, "waiting_calls": waiting}
    with tempfile.TemporaryDirectory() as root:
        text = servers_yaml({"a": argv(name="a")}, hub={"limits": limits})
        async with stdio_hub(text, Path(root)) as client:
            await client.initialize()
            await client.request("tools/list")
            answers = await flooded(client, count)
            lines.append(f"{count} calls at once: {dict(answers)}")
            if answers.keys() - {"result", "1004"} or answers["result"] < running + waiting:
                wrong.append(f"{count} calls at once: {dict(answers)}")
    return reported(lines, wrong)


if __name__ == "__main__":
    parser = arguments("hostile_clients", __doc__)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=256)
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.calls, given.running, given.waiting))
