"""The library in a host program: what importing it costs, and that nothing of the process changes."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mcp_hub
from tests.upstreams.launch import patient

LIMIT = 240

IMPORTED = """
import sys
before = set(sys.modules)
import mcp_hub
assert "Hub" in dir(mcp_hub)
import importlib
import json
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(top for top in tops if top not in sys.stdlib_module_names and top != "mcp_hub")))
print(json.dumps(sorted(name for name in sys.modules if name.startswith("mcp_hub"))))
"""

HOST = """
import asyncio, ctypes, gc, json, logging, os, signal, sys, threading

def state():
    subreaper = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)
    handlers = {number: str(signal.getsignal(number)) for number in signal.valid_signals()}
    return {
        "signals": handlers, "wakeup": signal.set_wakeup_fd(-1), "subreaper": subreaper.value,
        "switch": sys.getswitchinterval(), "gc": [gc.get_threshold(), gc.get_freeze_count(), gc.isenabled()],
        "logging": [str(logging.getLogger().handlers), logging.getLogger().level, logging.root.manager.disable],
        "hooks": [sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__],
        "policy": type(asyncio.get_event_loop_policy()).__name__, "cwd": os.getcwd(), "environ": dict(os.environ),
        "files": [os.fstat(0)[:3], os.fstat(1)[:3], os.fstat(2)[:3]],
    }

before = state()
from mcp_hub import Hub
import structlog
during = None

async def main():
    global during
    loop = type(asyncio.get_running_loop()).__module__
    signals = before["signals"]
    async with Hub.from_config(json.loads(sys.argv[1])) as hub:
        async with hub.connect() as client:
            await client.list_tools()
            names = [tool.name for tool in await hub.list_tools()]
            during = state()
    return loop, names

loop, names = asyncio.run(main())
after = state()
for moment, found in (("during", during), ("after", after)):
    for key in before:
        if key == "signals" and moment == "during":  # asyncio.run has its own for SIGINT
            found["signals"][signal.SIGINT] = before["signals"][signal.SIGINT]
        if key == "wakeup" and moment == "during":
            continue
        assert found[key] == before[key], (moment, key, before[key], found[key])
assert not structlog.is_configured()
assert loop.startswith("asyncio"), loop
print(json.dumps(names))
"""

pytestmark = pytest.mark.processes


def run(program: str, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    env = {"MCP_HUB_STATE_DIR": str(folder), "HOME": str(folder), "PATH": "/usr/bin", "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT)


def test_importing_the_package_imports_nothing_else(tmp_path: Path) -> None:
    done = run(IMPORTED, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    foreign, own = map(json.loads, done.stdout.splitlines())
    assert foreign == [] and own == ["mcp_hub"]


@pytest.mark.parametrize("name", mcp_hub.__all__)
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(mcp_hub, name) is not None and name in dir(mcp_hub)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Hubb'"):
        importlib.import_module("mcp_hub").__getattr__("Hubb")


def test_a_host_program_stays_as_it_was(tmp_path: Path) -> None:
    servers = {
        "child": {"command": sys.executable, "args": ["tests/upstreams/main.py", "--name", "child"]},
        "bad": {"command": "/nowhere/server", "restart": {"intensity": 0}},
    }
    done = run(HOST, json.dumps(patient({"servers": servers})), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert any(name.startswith("child_") for name in json.loads(done.stdout)), done.stdout


SECRET = "host-canary-4711"
LOGS = """
import asyncio, json, logging, sys
if sys.argv[2] == "listening":
    logging.basicConfig(level=logging.DEBUG, format="%(name)s|%(levelname)s|%(message)s", stream=sys.stderr)
from mcp_hub import Hub
from mcp_hub.logs import get_logger

async def main():
    async with Hub.from_config(json.loads(sys.argv[1])) as hub:
        await hub.list_tools()
        print(hub.servers()[0].reason)
        log = get_logger("mcp_hub.upstreams.test")
        try:
            raise ValueError(sys.argv[3])
        except ValueError:
            log.exception("said", text=sys.argv[3])

asyncio.run(main())
"""


@pytest.mark.parametrize("host", ["listening", "silent"])
def test_the_hub_logs_through_the_standard_library_and_masks_secrets(tmp_path: Path, host: str) -> None:
    program = "import os, sys; sys.stderr.write('said ' + os.environ['API_TOKEN'] + chr(10)); sys.exit(3)"
    server = {"command": sys.executable, "args": ["-c", program], "env": {"API_TOKEN": SECRET}}
    config = {"servers": {"bad": {**server, "restart": {"intensity": 1, "period": "60s"}}}}
    done = run(LOGS, json.dumps(config), host, SECRET, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, done.stdout
    assert SECRET not in done.stdout + done.stderr
    if host == "listening":
        assert "mcp_hub.upstreams.test|ERROR|said text='***'" in done.stderr and "|WARNING|" in done.stderr
    else:
        assert "|" not in done.stderr
