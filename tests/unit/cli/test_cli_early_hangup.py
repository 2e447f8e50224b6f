"""A SIGHUP that comes while a hub still starts: it is acted upon once the hub serves, and does not end it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

SECONDS = 240
START = """
import os, signal, anyio
from mcp_hub.cli import main
from mcp_hub.cli.signals import received_signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored where the tests run under nohup

async def serve():
    async with received_signals() as signals:
        with anyio.fail_after(240):
            await signals.reload_wanted()
        assert not signals.stopped.is_set()

def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)
"""


def started(then: str) -> subprocess.CompletedProcess[str]:
    """What a process of its own, without a terminal, came to."""
    return subprocess.run(
        [sys.executable, "-c", START + then], capture_output=True, text=True, timeout=SECONDS, start_new_session=True
    )


def test_it_is_remembered_from_before_the_hub_is_imported_until_it_serves() -> None:
    done = started("""
import importlib, mcp_hub.cli as cli

def imported(name):
    hang_up()
    return importlib.import_module(name)
cli.import_module = imported
main.get_command(None, "serve")
anyio.run(serve)
""")
    assert done.returncode == 0, done


def test_one_that_is_ignored_stays_so() -> None:
    done = started("""
signal.signal(signal.SIGHUP, signal.SIG_IGN)
main.get_command(None, "serve")
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
""")
    assert done.returncode == 0, done


def test_other_commands_end_by_it() -> None:
    assert started("main.get_command(None, 'list'); hang_up()").returncode == -1
