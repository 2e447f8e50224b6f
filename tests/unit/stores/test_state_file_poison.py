"""Small files of the state folder with contents that no hub has written: each counts as lost, and nothing fails."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_hub.catalog.pins import read as read_approvals
from mcp_hub.cli.access.running import recorded, running_hubs
from mcp_hub.onboarding.changes.written import _KEY, WrittenEntries
from mcp_hub.stores.keyed_files import KeyedFiles, next_epoch, stored_key
from mcp_hub.stores.locks import lock_file, take
from mcp_hub.stores.server_logs import ServerLogReader
from mcp_hub.upstreams.auth.grants import GrantStore, LoginFailed
from rigs.poison.values import NASTY

SHAPES = {
    "an array": b"[]",
    "text in place of a number": b'{"epochs":{"x":"y"},"floor":"z"}',
    "a number that does not fit": b'{"floor":%d,"epochs":{"x":%d}}' % (10**30, 2**64 - 1),
    "a number that is the last to fit": b'{"floor":%d}' % (2**64 - 1),
    "a negative number": b'{"floor":-5,"epochs":{}}',
    "a number with a fraction": b'{"floor":1e300}',
    "invalid UTF-8 in a text": b'{"epochs":{"\xff":1},"url":"\xff","time":"\xff","pid":1}',
    "half of a surrogate pair": b'{"epochs":{"\\ud800":1}}',
    "depth in a field": b'{"other":' + b"[" * 100_000,
    "depth in a known field": b'{"time":"t","server":"s","hub":1,"data":{"a":' + b"[" * 100_000,
}
CONTENTS = NASTY | SHAPES


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_small_file_with_other_contents_counts_as_lost(tmp_path: Path, content: bytes) -> None:
    files = KeyedFiles(tmp_path)
    files.update("epochs", lambda _: content)
    first = next_epoch(files, "p", "x", 0)
    assert 0 < first < next_epoch(files, "p", "x", 0) < 2**63
    files.update("key", lambda _: content)
    key = stored_key(files, "key")
    assert len(key) == 32 and stored_key(files, "key") == key
    with suppress(ValueError):
        read_approvals(content)
    (tmp_path / "grant.json").write_bytes(content)
    with pytest.raises(LoginFailed, match="is damaged"):
        GrantStore(tmp_path).load("grant")
    assert list(ServerLogReader(tmp_path).parsed(content + b"\n")) == []
    KeyedFiles(tmp_path / "clients").update(_KEY, lambda _: content)
    assert WrittenEntries(tmp_path).all() == []


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS.keys())
def test_record_of_a_hub_with_other_contents_hides_no_other_hub(tmp_path: Path, content: bytes) -> None:
    env = {"MCP_HUB_STATE_DIR": str(tmp_path)}
    with recorded("place", "http://127.0.0.1:1", env):
        [good] = tmp_path.rglob("*.json")
        other = good.with_name(good.name.replace(str(os.getpid()), "1"))
        held = lock_file(other)
        assert take(held, shared=False)
        other.write_bytes(content)
        assert [hub.url for hub in running_hubs("place", env)] == ["http://127.0.0.1:1"]
        os.close(held)
