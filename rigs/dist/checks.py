"""Disagreements between the facts, the sources and what was built: each is a line of text."""

import re
import tarfile
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import mcp_hub
from rigs.dist.facts import Facts

_FOREIGN = ("tests/", "rigs/", "bench/")


def of_sources(facts: Facts, root: Path) -> Iterator[str]:
    """What the sources say otherwise than `pyproject.toml`."""
    if mcp_hub.__version__ != facts.version:
        yield f"mcp_hub.__version__ is {mcp_hub.__version__}, pyproject.toml has {facts.version}"
    marker = f"mcp-name: {facts.registry_name}"
    if marker not in (root / "README.md").read_text("utf-8"):
        yield f"README.md lacks the marker of the registry: {marker}"
    if facts.version not in (root / "CHANGELOG.md").read_text("utf-8"):
        yield f"CHANGELOG.md does not have {facts.version}"
    if len(facts.description) > 100:
        yield f"the description has {len(facts.description)} characters; the registry takes 100"
    if not re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", facts.registry_name):
        yield f"{facts.registry_name} is not a name of the registry"


def of_wheel(facts: Facts, wheel: Path) -> Iterator[str]:
    """What the wheel has and should not have, or lacks."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(file.read(info).decode())
        entries = file.read(info.replace("METADATA", "entry_points.txt")).decode()
        tags = HeaderParser().parsestr(file.read(info.replace("METADATA", "WHEEL")).decode()).get_all("Tag")
    if (metadata["Name"], metadata["Version"]) != (facts.name, facts.version):
        yield f"{wheel.name} is {metadata['Name']} {metadata['Version']}"
    if tags != ["py3-none-any"]:  # otherwise it fits one system, and others compile nothing but cannot install it
        yield f"{wheel.name} has the tags {tags}, not py3-none-any"
    yield from (f"{wheel.name} has {name}" for name in names if name.startswith(_FOREIGN))
    if "mcp_hub/py.typed" not in names:
        yield f"{wheel.name} lacks py.typed"
    if not any(name.endswith("LICENSE") for name in names):
        yield f"{wheel.name} lacks LICENSE"
    if f"{facts.name} = " not in entries:
        yield f"{wheel.name} lacks the command {facts.name}"
    for text in metadata.get_all("Requires-Dist") or ():
        if re.match(r"(mcp|pydantic|starlette|click)\b(?!-)", text) and "<" not in text:
            yield f"{wheel.name} requires {text}: not capped, though it breaks with a major"


def of_sdist(facts: Facts, sdist: Path) -> Iterator[str]:
    """As `of_wheel`."""
    with tarfile.open(sdist) as file:
        names = [name.partition("/")[2] for name in file.getnames()]
    yield from (f"{sdist.name} has {name}" for name in names if name.startswith(_FOREIGN))
    needed = ("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "mcp_hub/py.typed")
    yield from (f"{sdist.name} lacks {name}" for name in needed if name not in names)
