"""`make fuzz`: every parser of what others write meets inputs that nobody would write. Exit code 1 for a finding.

Each finding is written to a file, which `--replay FILE` runs again.
"""

import os
import sys
from hashlib import sha256
from pathlib import Path

from rigs.fuzz.search import Finding, fault_of
from rigs.fuzz.workers import TARGETS, Outcome, run_all
from rigs.report import arguments, reported, say

_SUFFIX = ".input"


def main() -> int:
    parser = arguments("fuzz", __doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (all)")
    parser.add_argument("--seconds", type=float, default=600, help="for each target (600)")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"), help="(another each time)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (one a core)")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for inputs that failed")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="runs this input alone")
    given = parser.parse_args()
    if given.replay is not None:
        return _replayed(given.replay)
    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    say(f"seed {given.seed}")
    lines, found = [], []
    for outcome in run_all(given.targets or list(TARGETS), given.seconds, given.seed, given.jobs):
        lines.append(_line(outcome))
        say(lines[-1])
        found += [f"{_kept(each, given.findings)}: {each.place}\n{each.report}" for each in outcome.findings]
    return reported(lines, found)


def _line(outcome: Outcome) -> str:
    rate = outcome.inputs / max(outcome.seconds, 0.001)
    return (
        f"{outcome.target:<9} {outcome.inputs:>10} inputs in {outcome.seconds:.0f} s ({rate:.0f}/s), "
        f"{len(outcome.findings)} findings"
    )


def _kept(finding: Finding, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.target}-{sha256(finding.data).hexdigest()[:12]}{_SUFFIX}"
    path.write_bytes(finding.data)
    return path


def _replayed(path: Path) -> int:
    """The name of the file tells the target."""
    name = path.name.rpartition("-")[0]
    if name not in TARGETS:
        print(f"{path}: its name has to begin with a target and a dash: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    finding = fault_of(TARGETS[name], path.read_bytes())
    print("nothing found" if finding is None else f"{finding.place}\n{finding.report}")
    return finding is not None


if __name__ == "__main__":
    sys.exit(main())
