"""An earlier commit of the hub as the relay `before`, and what has become slower since.

`--against REV` installs that commit, without the files that are not committed, into a folder of its own below
`.venv/before`, where it stays: the next run with the same commit finds it.
"""

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from bench.cases import Result

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv" / "before"
# what may not get worse in one run: figures that are better the smaller they are, with their units
COSTS = {
    "cpu_us": "µs",
    "cpu_ms": "ms",
    "init_s": "s",
    "list_s": "s",
    "idle_mb": "MB",
    "after_mb": "MB",
    "session_kb": "kB",
}
WORSE = 1.05
SECONDS = 900


class NoSuchCommit(Exception):
    """The commit cannot be had; the message says why."""


@dataclass(frozen=True)
class Row:
    """One figure of the hub beside that of the earlier commit."""

    case: str
    variant: str
    figure: str
    hub: float
    before: float

    @property
    def ratio(self) -> float:
        return self.hub / self.before

    @property
    def is_worse(self) -> bool:
        return self.ratio > WORSE


def rows(results: Iterable[Result]) -> list[Row]:
    """All costs that both were measured by, in the order of measurement."""
    sides = {(result.case, result.variant, result.side): result for result in results if not result.failed}
    return list(_rows(sides))


def _rows(sides: dict[tuple[str, str, str], Result]) -> Iterator[Row]:
    for (case, variant, side), result in sides.items():
        earlier = sides.get((case, variant, "before"))
        if side != "hub" or earlier is None:
            continue
        for figure in COSTS:
            hub, before = result.figures.get(figure), earlier.figures.get(figure)
            if hub is not None and before:
                yield Row(case, variant, figure, hub, before)


def lines(results: Iterable[Result]) -> list[str]:
    """The comparison as text; nothing when there was no earlier hub."""
    found = rows(results)
    if not found:
        return []
    names = [f"{row.case}: {row.variant}, {row.figure.rpartition('_')[0]}" for row in found]
    width = max(map(len, names))
    said = ["", f"hub × before (worse: by more than {WORSE - 1:.0%})"]
    for name, row in zip(names, found, strict=True):
        unit = COSTS[row.figure]
        mark = "  worse" if row.is_worse else ""
        said.append(f"  {name:{width}}  {row.hub:10,.2f}  {row.before:10,.2f} {unit:2}  {row.ratio:5.2f}{mark}")
    return [*said, "", f"  {sum(row.is_worse for row in found)} of {len(found)} worse"]


def commit(revision: str, root: Path = ROOT) -> str:
    """The commit that a revision names. Raises: `NoSuchCommit`."""
    if revision.startswith("-"):
        raise NoSuchCommit(f"{revision}: not a revision")
    line = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NoSuchCommit(f"git: {error}") from error
    if done.returncode:
        raise NoSuchCommit(f"{revision}: no commit of {root}")
    return done.stdout.strip()


def here(root: Path = ROOT) -> str:
    """The commit of the hub that is measured, and whether files differ from it; empty outside of a repository."""
    try:
        found = commit("HEAD", root)
    except NoSuchCommit:
        return ""
    changed = subprocess.run(["git", "-C", str(root), "diff", "--quiet", "HEAD"], capture_output=True, check=False)
    return found + (" with changes" if changed.returncode else "")


def installed(revision: str) -> Path:
    """The command `mcp-hub` of that commit, with the dependencies that it asks for today. Raises: `NoSuchCommit`."""
    found = commit(revision)
    folder = FOLDER / found[:12]
    program, mark = folder / "venv" / "bin" / "mcp-hub", folder / ".installed"
    if mark.exists():
        return program
    shutil.rmtree(folder, ignore_errors=True)
    unpack(found, folder / "source")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
    python, source = str(folder / "venv" / "bin" / "python"), f"{folder / 'source'}[uvx]"
    try:
        _run([str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", python, source])
    except NoSuchCommit:
        _run([sys.executable, "-m", "pip", "--python", python, "install", "--quiet", source])
    mark.touch()
    return program


def unpack(found: str, folder: Path, root: Path = ROOT) -> None:
    """The files of a commit. Raises: `NoSuchCommit`."""
    folder.mkdir(parents=True)
    line = ["git", "-C", str(root), "archive", "--format=tar", found]
    done = subprocess.run(line, capture_output=True, check=False)
    if done.returncode:
        raise NoSuchCommit(f"{found}: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:  # Python before 3.11.4; the archive is of this repository
            archive.extractall(folder)


def _run(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSuchCommit(f"{' '.join(argv)}: {error}") from error
    if done.returncode:
        raise NoSuchCommit(f"{' '.join(argv)}: {done.stderr.strip()[-300:]}")
