"""One process of a hub over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.e2e.client import Hub
from tests.fork_server import forked_command
from tests.upstreams.child import PeerClosed


def written(root: Path, text: str) -> Path:
    """The configuration as a file."""
    config = root / "servers.yaml"
    config.write_text(text, "utf-8")
    return config


@asynccontextmanager
async def hub_process(text: str, root: Path, *args: str, name: str = "state", **env: str) -> AsyncIterator[Hub]:
    """A hub on a free port of 127.0.0.1 with this configuration; what it keeps is in the folder `name` below `root`.

    As for `fronts.http_hub`.
    """
    config = written(root, text)
    home = root if name == "state" else root / name
    own = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CONFIG", "CACHE", "DATA", "STATE")}
    own["MCP_HUB_STATE_DIR"] = str(home / "state")
    argv = [*forked_command(), "serve", "--http", "--port", "0", "--config", str(config), *args]
    async with Hub(argv, {**own, **env}) as hub:
        try:
            hub.url = (await hub.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp")).group()
        except (PeerClosed, TimeoutError) as failed:
            raise AssertionError(f"the hub did not start: {failed!r}\n{hub.stderr}") from failed
        yield hub
        if (hub.returncode or 0) > 0:
            raise AssertionError(f"the hub ended by itself with {hub.returncode}:\n{hub.stderr}")
        await hub.terminate()
