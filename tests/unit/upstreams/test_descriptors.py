"""The limit of open files: raised for servers, and kept from running out."""

import subprocess
import sys

import pytest

from mcp_hub.app.limits import open_files
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import StartFailed
from mcp_hub.upstreams.process import child
from mcp_hub.upstreams.process.child import HUB, PER_SERVER, room_for_server

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")

PROGRAM = """
import resource, sys
from mcp_hub import logs
from mcp_hub.upstreams.process.child import provide
soft, hard, needed = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
logs.configure('info', 'json')
provide(needed)
print("limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("soft", "hard", "needed", "limit", "event"),
    [
        (256, 1024, 200, 256, None),
        (96, 8192, 200, 4096, "open_files_raised"),
        (96, 1024, 200, 1024, "open_files_raised"),
        (96, 96, 200, 96, "open_files_few"),
    ],
)
def test_limit_is_raised_if_servers_need_that(soft: int, hard: int, needed: int, limit: int, event: str | None) -> None:
    line = [sys.executable, "-c", PROGRAM, str(soft), str(hard), str(needed)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=240)
    output = done.stdout + done.stderr
    assert f"limit {limit}" in output
    assert (event is None and "open_files" not in output) or (event is not None and event in output)


def test_a_server_without_room_is_refused_and_those_that_start_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_limit", lambda: 100)
    monkeypatch.setattr(child, "_open_files", lambda: 73)
    monkeypatch.setattr(child, "_STARTS", child._Starts())
    with room_for_server():
        with pytest.raises(StartFailed, match="ulimit -n") as refused, room_for_server():
            pass
        assert refused.value.code == "too_many_files"
    with room_for_server():
        pass


def test_servers_that_start_together_count_open_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = 0

    def count() -> int:
        nonlocal counts
        counts += 1
        return 30

    monkeypatch.setattr(child, "_open_files", count)
    monkeypatch.setattr(child, "_limit", lambda: 4096)
    monkeypatch.setattr(child, "_STARTS", child._Starts())
    monkeypatch.setattr(child, "_RECOUNT", 60.0)
    for _ in range(20):
        with room_for_server():
            pass
    assert counts == 1
    monkeypatch.setattr(child, "_limit", lambda: 400)  # by the last count it may be full soon: it is made again
    with room_for_server():
        assert counts == 2


def test_open_files_are_counted_by_servers_sessions_and_clients() -> None:
    servers = {
        "a": {"command": "x"},
        "off": {"command": "x", "enabled": False},
        "far": {"url": "https://x.example/mcp"},
    }
    assert open_files(Settings.model_validate({"servers": servers}), has_clients=False) == HUB + PER_SERVER
    servers["each"] = {"command": "x", "scope": "session"}
    alone = open_files(Settings.model_validate({"servers": servers}), has_clients=False)
    assert alone == HUB + 17 * PER_SERVER < open_files(Settings.model_validate({"servers": servers}), has_clients=True)
