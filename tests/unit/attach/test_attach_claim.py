"""A hub removes only what is its own: a successor's socket and record stay, and its lock cannot be taken twice."""

import json
import os
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.app.attached.claim import PrivateSocket, claimed, described
from mcp_hub.attach.folder import RECORD, SOCKET, check_socket, is_alive, take_start
from mcp_hub.errors import UpstreamUnavailable

pytestmark = pytest.mark.anyio


async def test_a_socket_is_private_and_goes_with_its_hub(tmp_path: Path) -> None:
    own = PrivateSocket(tmp_path / SOCKET)
    check_socket(str(tmp_path / SOCKET))
    assert own.is_there
    own.close()
    assert not os.listdir(tmp_path)


async def test_the_socket_of_a_successor_stays(tmp_path: Path) -> None:
    old = PrivateSocket(tmp_path / SOCKET)
    new = PrivateSocket(tmp_path / SOCKET)
    old.close()
    assert new.is_there
    new.close()


async def test_a_removed_socket_is_restored_while_somebody_waits_on_it(tmp_path: Path) -> None:
    own = PrivateSocket(tmp_path / SOCKET)
    accepted = []

    async def accept() -> None:
        accepted.append(await own.accept())

    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accept)
            await anyio.wait_all_tasks_blocked()
            (tmp_path / SOCKET).unlink()
            assert not own.is_there
            own.restore()
            async with await anyio.connect_unix(tmp_path / SOCKET):
                while not accepted:
                    await anyio.lowlevel.checkpoint()
    accepted[0].close()
    own.close()


def test_the_record_of_a_successor_stays(tmp_path: Path) -> None:
    with described(tmp_path, "in_one"):
        assert json.loads((tmp_path / RECORD).read_text())["pid"] == os.getpid()
        (tmp_path / RECORD).write_text('{"id": "in_two"}')
    assert json.loads((tmp_path / RECORD).read_text()) == {"id": "in_two"}


def test_only_the_lock_says_who_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.app.attached.claim._PAUSE", 0.0)
    assert not is_alive(str(tmp_path))
    with claimed(tmp_path):
        assert is_alive(str(tmp_path))
        with pytest.raises(UpstreamUnavailable), claimed(tmp_path):
            pass
    assert not is_alive(str(tmp_path))


def test_one_of_many_takes_the_lock_to_start_a_hub(tmp_path: Path) -> None:
    first = take_start(str(tmp_path))
    assert first is not None and take_start(str(tmp_path)) is None
    os.close(first)
    second = take_start(str(tmp_path))
    assert second is not None
    os.close(second)
