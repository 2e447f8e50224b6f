"""The hub on macOS and Windows, as far as Linux can show it: modules see another system, without what that lacks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from mcp_hub.cli.signals import plain_receiver, signal_receiver
from tests.interaction.fronts import http_hub
from tests.upstreams.launch import patient
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.processes]
AS_WINDOWS = [sys.executable, "-m", "tests.as_system", "win32", "mcp-hub"]
LOCAL = {"local": "mcp_hub.examples.tools"}


@pytest.mark.proof
def test_every_module_can_be_imported_on_macos_and_windows() -> None:
    line = [sys.executable, "-m", "tests.as_system", "imports"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


async def test_a_hub_on_windows_serves_functions_and_remote_servers_and_advises_wsl_for_programs(
    tmp_path: Path,
) -> None:
    (tmp_path / "far").mkdir()
    async with http_hub(json.dumps({"servers": {"calc": LOCAL}}), tmp_path / "far") as far:
        servers = {"near": LOCAL, "far": {"url": far.url}, "program": {"command": "npx", "args": ["-y", "x"]}}
        (tmp_path / "servers.yaml").write_text(json.dumps(patient({"hub": {"prefix": "always"}, "servers": servers})))
        env = {**os.environ, "HOME": str(tmp_path), "MCP_HUB_STATE_DIR": str(tmp_path / "state")}
        argv = [*AS_WINDOWS, "serve", "--config", str(tmp_path / "servers.yaml")]
        async with StdioClient(argv, env) as client:
            await client.initialize()
            for tool in ("near_add", "far_calc_add"):
                answer = await client.call(tool, {"a": 1, "b": 2})
                assert answer["result"]["content"][0]["text"] == "3.0", answer
            assert "no_local_servers" in client.stderr
            assert "wsl --install" in client.stderr and "mcp-hub install --all --import" in client.stderr
            assert await client.close() == 0


@pytest.mark.parametrize("receiver", [signal_receiver, plain_receiver])
async def test_both_receivers_take_signals_of_their_block_and_put_the_handlers_back(receiver: object) -> None:
    assert callable(receiver)
    before = signal.getsignal(signal.SIGTERM)
    with anyio.fail_after(240), receiver(signal.SIGINT, signal.SIGTERM) as received:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
            assert await anext(received) is number
    assert signal.getsignal(signal.SIGTERM) == before
