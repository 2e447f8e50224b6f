"""What `make` installs and runs, and how the tests report what they cannot measure."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main
from mcp_hub.upstreams.process import commands
from tests import fork_server

ROOT = Path(__file__).parents[2]
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
pytestmark = pytest.mark.processes


def recipe(target: str, venv: Path, *variables: str) -> str:
    """The commands of a target where nothing is installed yet; none of them is run."""
    line = ["make", "--dry-run", "--no-print-directory", target, f"VENV={venv}", *variables]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True, timeout=240).stdout


@needs_make
def test_targets_install_what_they_need_and_leave_out_what_takes_long(tmp_path: Path) -> None:
    said = recipe("run", tmp_path / "venv")
    assert "--no-compile --editable '.[uvx]'" in said and "mcp-hub serve --http" in said
    assert "--group" not in said and "if the port is taken: make run RUN='--port 8766'\n" in said
    assert "serve --http --config servers.yaml --port 9\n" in recipe("run", tmp_path / "venv", "RUN=--port 9")
    assert "--group dev" in recipe("test", tmp_path / "venv")
    said = recipe("test-fast", tmp_path / "venv")
    marks = re.findall(r"not (\w+)", said)
    assert marks == ["processes", "proof", "data", "slow"] and "EXAMPLES=few" in said


@needs_make
def test_the_types_of_other_systems_are_checked_in_the_proof(tmp_path: Path) -> None:
    line = ["make", "--no-print-directory", "types", f"VENV={tmp_path}", "STAMP="]
    (tmp_path / "bin").mkdir()
    mypy = tmp_path / "bin" / "mypy"
    mypy.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ntest "$2" != "$BAD"\n')
    mypy.chmod(0o755)
    for bad, systems in (("", ["win32", "darwin"]), ("win32", ["win32"]), ("darwin", ["win32", "darwin"])):
        (tmp_path / "calls").write_text("")
        done = subprocess.run(line, cwd=ROOT, env={**os.environ, "BAD": bad}, capture_output=True, timeout=240)
        calls = (tmp_path / "calls").read_text().splitlines()
        assert bool(done.returncode) == bool(bad)
        assert calls == [f"--platform {name} --cache-dir .mypy_cache/{name} --package mcp_hub" for name in systems]
    assert re.search(r"^\t.*MAKE\) types ", (ROOT / "Makefile").read_text().partition("\nproof:")[2], re.MULTILINE)


def test_tests_without_their_data_are_one_line_of_the_report() -> None:
    files = ["tests/unit/catalog/test_search_figures.py", "tests/property/test_compact_captured.py"]
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", *files]
    env = {**os.environ, "MCP_HUB_EVAL_DATA": ""}
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    (skipped,) = [said for said in done.stdout.splitlines() if said.startswith("SKIPPED")]
    assert done.returncode == 0 and "MCP_HUB_EVAL_DATA" in skipped and "CONTRIBUTING.md" in skipped


def test_without_uvx_the_check_names_the_extra_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "servers.yaml").write_text("servers: {time: {command: uvx, args: [mcp-server-time]}}")
    monkeypatch.setattr(commands, "SYSTEM_PLACES", ())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    for name in ("PATH", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    checked = CliRunner().invoke(main, ["check", "--no-start", "-c", str(tmp_path / "servers.yaml")])
    assert "[command_not_found]" in checked.output and "[uvx]" in checked.output


STAND_IN = Path(fork_server.__file__).with_name("forked_command.py")


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="commands are not forked")
@pytest.mark.parametrize("code", [0, 2])
def test_command_that_ends_before_its_stand_in_is_ready_has_its_exit_code(tmp_path: Path, code: int) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path := str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(240)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                socket.recv_fds(connection, 1 << 20, 3)
                connection.shutdown(socket.SHUT_RD)
                connection.sendall(b"1\n%d\n" % (code << 8))

        server = Thread(target=serve)
        server.start()
        line = [sys.executable, "-I", "-S", str(STAND_IN), path, "--version"]
        assert subprocess.run(line, timeout=240, env={}).returncode == code
        server.join()
