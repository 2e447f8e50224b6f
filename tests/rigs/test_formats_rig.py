"""A short case of the rig that checks results of public servers: one of our own in their place."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.formats.providers import PROVIDERS
from rigs.formats import servers
from rigs.formats.servers import CALLS, Row, row_of, summary, table, toml_calls
from rigs.sandbox.real import Entry, entries
from tests.unit.formats.server_results import RESULTS
from tests.upstreams.launch import entry

KINDS = ("a picture, twice", "a list, an item a block", "an error with a structure", "a sound, twice")


class Own(Entry):
    def settings(self, places: Mapping[str, str]) -> dict[str, Any]:
        return {**entry(), "env": {}}


@pytest.mark.proof
@pytest.mark.anyio
async def test_results_of_a_server_are_called_for_written_and_checked(tmp_path: Path) -> None:
    calls = [{"tool": "raw", "arguments": {"json": json.dumps(RESULTS[kind])}} for kind in KINDS]
    row = await row_of(tmp_path, Own("own", "npm:own", "1"), calls)
    assert row.reason == "" and row.faults == [] and len(row.results) > len(KINDS)
    assert row.kinds["image/png"] == row.kinds["audio/wav"] == 1 and row.kinds["structure"] >= 4
    assert row.cells() in table([row]) and f"1 servers, {len(row.results)} results" in summary([row])


def test_a_text_that_is_lost_and_a_rule_that_is_broken_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> Sequence[dict[str, Any]]:
        return [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": " "}]}]}]

    monkeypatch.setattr(servers, "write_results", write)
    monkeypatch.setattr(servers, "PROVIDERS", [next(iter(PROVIDERS))])
    row = Row("own")
    row.add("raw", RESULTS["a text"])
    assert [fault.rpartition(": ")[2] for fault in row.faults] == ["a blank text", "lost 'note'"]


def test_every_call_is_of_a_server_of_the_list() -> None:
    assert toml_calls(CALLS).keys() <= {one.name for one in entries()}
