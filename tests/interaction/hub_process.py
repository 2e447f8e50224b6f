"""One process of a hub over HTTP."""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path

import yaml

from mcp_hub.sandbox.confinement import Unsupported, support
from rigs.report import NETS
from tests.e2e.client import Hub
from tests.fork_server import forked_command
from tests.upstreams.child import PeerClosed
from tests.upstreams.launch import patient

_OUTSIDE: Mapping[str, str] = {
    "test_a_server_that_failed_is_tried_again_by_a_reload_of_the_same_file": "a script hides the files of the server",
    **dict.fromkeys(
        (
            "test_hub_under_a_hub_takes_its_servers_along_when_the_outer_one_is_killed",
            "test_hub_under_a_hub_leaves_the_outer_one_no_zombies",
        ),
        "another configuration hides the files of the server",
    ),
}
"""Tests that `make sandboxed` leaves out, and why."""


def written(root: Path, text: str) -> Path:
    """The configuration as a file, as for `prepared`."""
    config = root / "servers.yaml"
    config.write_text(prepared(text), "utf-8")
    return config


def prepared(text: str) -> str:
    """The configuration, `patient`, and with a sandbox for its servers if this run has one; the same text if it is bad.

    The `defaults` have the sandbox `$SANDBOXED`: `on`, or a name of `rigs.report.NETS`. A file that is named after
    `--journal` is made then, since a rule opens no other.
    """
    config = read(text)
    if not isinstance(config, dict) or "servers" not in config:
        return text
    config = patient(config)
    kind = os.environ.get("SANDBOXED", "")
    if not kind:
        return json.dumps(config, indent=2)
    for entry in config["servers"].values():
        for flag, value in pairwise(entry.get("args", ())):
            if flag == "--journal":
                Path(value).touch()
    rule = "on" if kind == "on" else {"net": NETS[kind]}
    return json.dumps({**config, "defaults": {"sandbox": rule, **(config.get("defaults") or {})}})


def read(text: str) -> object:
    """What stands in a configuration; None if that is not YAML."""
    with suppress(ValueError):
        return json.loads(text)  # takes a tenth of the time
    with suppress(yaml.YAMLError):
        return yaml.safe_load(text)
    return None


def without_sandbox(test: str) -> str:
    """The reason for which a test cannot run with all servers in a sandbox; empty if it can, or if they have none."""
    if not os.environ.get("SANDBOXED", ""):
        return ""
    try:
        support("hosts")
    except Unsupported as problem:
        return str(problem)
    return _OUTSIDE.get(test, "")


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
