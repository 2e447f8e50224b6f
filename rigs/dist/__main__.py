"""`make dist`: builds everything into `dist/`, checks it, installs the wheel offline and speaks MCP to it."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from rigs.dist import build, checks, outside, proof
from rigs.dist.documents import documents
from rigs.dist.facts import ROOT, Facts, read_facts


def main() -> int:
    """Exit code 1 if anything disagrees or does not work."""
    parser = argparse.ArgumentParser(prog="python -m rigs.dist", description=__doc__)
    parser.add_argument("--outside", action="store_true", help="also run the checks that need a package index")
    given = parser.parse_args()
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    facts = read_facts()
    faults = list(_faults(facts, folder, is_outside=given.outside))
    for fault in faults:
        print(f"fault: {fault}")
    print(f"{facts.name} {facts.version}: {len(faults)} faults in {folder}")
    return 1 if faults else 0


def _faults(facts: Facts, folder: Path, *, is_outside: bool) -> Iterator[str]:
    yield from checks.of_sources(facts, ROOT)
    made = documents(facts)
    build.texts(made, folder)
    bundle = build.bundle(facts, made, folder)
    wheel, sdist = build.packages(facts, folder)
    yield from checks.of_wheel(facts, wheel)
    yield from checks.of_sdist(facts, sdist)
    build.wheels(wheel, folder / "wheels")
    hub = proof.installed(facts, folder / "wheels", folder / "proof")
    where = "without network" if proof.without_network() else "with the network of this machine: unshare is not allowed"
    print(f"speaking MCP over stdio to the hub as it is installed, as plugin and as bundle, {where}", file=sys.stderr)
    for way, command in proof.ways(facts, hub, folder).items():
        yield from (f"{way}: {fault}" for fault in proof.spoken(command, folder / "run", folder / "wheels"))
    if is_outside:
        yield from outside.of_linters(bundle, folder)
        yield from outside.of_wheels(facts, wheel)


if __name__ == "__main__":
    sys.exit(main())
