"""Writes the artefacts: wheel and sdist by the build backend, texts, and the bundle as a zip file."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rigs.dist.documents import MCPB
from rigs.dist.facts import ROOT, Facts

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the bundle, so that the same sources make the same bytes."""


def run(*command: str | Path) -> None:
    """Runs a program to its end, with its output on ours. Raises `CalledProcessError`."""
    subprocess.run(list(map(str, command)), cwd=ROOT, check=True, stdout=sys.stderr)


def succeeds(*command: str | Path) -> bool:
    """Whether a program that may fail does not: its output, errors included, is for nobody."""
    return subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True).returncode == 0


def packages(facts: Facts, folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist; the build backend comes from a package index, or from uv's cache."""
    for old in folder.glob(f"{_file_name(facts)}-*"):
        old.unlink()
    run(sys.executable, "-m", "uv", "build", "--quiet", "--out-dir", folder)
    return next(folder.glob(f"{_file_name(facts)}-*.whl")), next(folder.glob(f"{_file_name(facts)}-*.tar.gz"))


def texts(made: Mapping[str, str], folder: Path) -> None:
    """Writes them in place of those of an earlier run."""
    for top in {path.partition("/")[0] for path in made}:
        shutil.rmtree(folder / top, ignore_errors=True)
    for path, text in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")


def bundle(facts: Facts, made: Mapping[str, str], folder: Path) -> Path:
    """The bundle for Claude Desktop: no environment inside, since uv makes one where it is installed."""
    path = folder / f"{facts.name}-{facts.version}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in made.items():
            if name.startswith(f"{MCPB}/"):
                file.writestr(zipfile.ZipInfo(name.removeprefix(f"{MCPB}/"), _EPOCH), text)
    return path


def wheels(wheel: Path, folder: Path) -> None:
    """A folder of wheels with the hub and all that it needs; asks a package index only for what is not there yet."""
    folder.mkdir(exist_ok=True)
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", str(folder)]
    if not succeeds(*fetch, "--no-index", "--find-links", folder, wheel):
        run(*fetch, "--prefer-binary", wheel)


def _file_name(facts: Facts) -> str:
    return facts.name.replace("-", "_")
