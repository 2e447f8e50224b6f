"""Clients of background hubs, and the end of every hub that a test has started."""

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from mcp_hub.attach.folder import LOCK, RECORD, is_alive
from mcp_hub.attach.join import NotJoined, request
from tests.fork_server import FORKS, forked_command
from tests.interaction.fronts import stdio_hub
from tests.upstreams.child import until
from tests.upstreams.stdio_client import StdioClient


class Background:
    """The hubs of one test: `runtime` has their folders, `root` the configuration and the state."""

    def __init__(self, root: Path, runtime: Path) -> None:
        self.root = root
        self.runtime = runtime

    @asynccontextmanager
    async def client(self, config: str, *args: str, attach: str = "always", **env: str) -> AsyncIterator[StdioClient]:
        """A client of the hub of this configuration, which the first one starts."""
        own = {"XDG_RUNTIME_DIR": str(self.runtime), FORKS: "1", **env}
        async with stdio_hub(config, self.root, *args, "--attach", attach, **own) as running:
            yield running

    @property
    def folders(self) -> list[Path]:
        """Those of the hubs, dead ones among them."""
        return sorted(lock.parent for lock in self.runtime.glob(f"mcp-hub/*/{LOCK}"))

    @property
    def living(self) -> list[Path]:
        """The folders whose hub lives."""
        return [folder for folder in self.folders if is_alive(str(folder))]

    def record(self, folder: Path | None = None) -> dict[str, Any]:
        """The record of a hub, by default of the only one."""
        (found,) = [folder] if folder is not None else self.living
        record: dict[str, Any] = json.loads((found / RECORD).read_text("utf-8"))
        return record

    def command(self, name: str, *args: str) -> dict[str, Any]:
        """The JSON document that a command prints about this configuration."""
        own = {"MCP_HUB_STATE_DIR": str(self.root / "state"), "XDG_RUNTIME_DIR": str(self.runtime)}
        line = [*forked_command(), name, "--config", str(self.root / "servers.yaml"), *args]
        done = subprocess.run(line, env={**os.environ, **own}, capture_output=True, check=False, timeout=240)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the only hub that lives."""
        os.kill(self.record()["pid"], number)

    async def gone(self) -> None:
        """Waits until no hub lives."""
        await until(lambda: not self.living)


@contextmanager
def background(root: Path) -> Iterator[Background]:
    """A place for hubs, with a path that is short enough for a socket; those that are left at the end are stopped."""
    with tempfile.TemporaryDirectory(prefix="att-", dir="/tmp") as runtime:
        hubs = Background(root, Path(runtime))
        try:
            yield hubs
        finally:
            for folder in hubs.living:
                with suppress(NotJoined):
                    request(str(folder), "stop", 3.0)
                with suppress(OSError, ValueError):
                    _end(hubs.record(folder))


def _end(record: dict[str, Any]) -> None:
    """Kills a hub that has not ended, if the number is still that of its process."""
    place = Path(f"/proc/{record['pid']}/stat")
    if place.exists() and int(place.read_bytes().rpartition(b")")[2].split()[19]) == record["process_started"]:
        os.kill(record["pid"], signal.SIGKILL)
