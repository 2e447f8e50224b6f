"""Folders that the hub makes are for nobody else: each part of a path, whatever command comes first, at any umask."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mcp_hub.sandbox.confinement import ABI_LIMIT
from tests.e2e.background import background
from tests.fork_server import forked_command

pytestmark = [pytest.mark.processes, pytest.mark.anyio]

SERVER = {"command": sys.executable, "args": ["-c", "pass"]}
FIRST = [
    ("install", "cursor", "--config", "servers.yaml"),
    ("import", "claude_desktop_config.json", "--yes", "--no-count", "--config", "deep/down/servers.yaml"),
    ("add", "notes", "--config", "deep/down/servers.yaml", "--", sys.executable, "-c", "pass"),
    ("init", "--yes", "--config", "deep/down/servers.yaml"),
    ("serve", "--attach", "never", "--config", "servers.yaml"),
    ("list", "--config", "servers.yaml"),
    ("service", "install", "--config", "servers.yaml"),
    ("export", "--config", "servers.yaml"),
]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home without the folders that programs of a desktop make."""
    with TemporaryDirectory(prefix="h", dir="/tmp") as folder:
        yield Path(folder)


def run(home: Path, umask: int, *args: str) -> str:
    (home / "servers.yaml").write_text(json.dumps({"servers": {"a": {**SERVER, "enabled": False}}}))
    (home / "claude_desktop_config.json").write_text(json.dumps({"mcpServers": {"b": SERVER}}))
    for name in ("servers.yaml", "claude_desktop_config.json"):
        (home / name).chmod(0o600)
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", ABI_LIMIT: "0"}  # what a server makes in a sandbox is its own
    line = [*forked_command(), *args]
    done = subprocess.run(
        line, env=env, cwd=home, umask=umask, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
    )
    return done.stdout + done.stderr


def folders(home: Path) -> dict[str, str]:
    """The folders below a home with their rights."""
    return {str(path): f"{stat.S_IMODE(path.stat().st_mode) & 0o777:03o}" for path in home.rglob("*") if path.is_dir()}


@pytest.mark.first(len(FIRST))  # where nothing is masked
@pytest.mark.parametrize("args", FIRST, ids=[args[0] for args in FIRST])
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_folders_of_the_first_command_are_private(home: Path, umask: int, args: tuple[str, ...]) -> None:
    output = run(home, umask, *args)
    made = folders(home)
    assert made or args[0] == "export", output
    assert set(made.values()) <= {"700"}, made


def test_a_shared_group_locks_nobody_out_after_the_first_install(home: Path) -> None:
    home.chmod(0o2770)
    if os.geteuid() == 0:
        os.chown(home, -1, 12345)
    first, second = (run(home, 0o002, "install", "cursor", "--config", "servers.yaml") for _ in range(2))
    assert "state_untrusted" not in first + second
    assert set(folders(home).values()) == {"700"}


async def test_folders_of_a_background_hub_are_private(tmp_path: Path) -> None:
    mask = os.umask(0o000)
    try:
        with background(tmp_path) as hubs:
            async with hubs.client("servers: {}"):
                pass
            made = folders(tmp_path / "state") | folders(hubs.runtime)
        assert made and set(made.values()) == {"700"}
    finally:
        os.umask(mask)
