"""Schemas made to break compaction come back unharmed, and after a bounded amount of work."""

import sys
from typing import Any

import pytest

from mcp_hub.catalog.compact import MAX_BYTES, _Rules, compact_schema, compact_tool
from mcp_hub.catalog.offers.definitions import MAX_DEPTH
from tests.captured import encoded


def nested(levels: int, innermost: str = '{"title":"T"}') -> bytes:
    return ('{"not":' * (levels - 1) + innermost + "}" * (levels - 1)).encode()


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{", b"null", b"true", b"1", b'"title"', b"[]", b'[{"title":"T"}]', b'{"title":"T"} x', b"\xff\xfe"),
        b'{"title":"T","minimum":NaN}',
        b'{"title":"T","minimum":Infinity}',
        b'{"title":"T","minimum":01}',
        b'{"title":"T","description":"\xff"}',
        b'{"title":"T","description":"\\ud800"}',
        b'{"title":"T","type":"string","type":"integer"}',
        b'{"title":"T","properties":{"a":{},"\\u0061":{}}}',
        '{"title":"T"}'.encode("utf-16"),
        b"\xef\xbb\xbf" + b'{"title":"T"}',
    ],
    ids=repr,
)
def test_what_is_no_schema_stays_byte_for_byte(raw: bytes) -> None:
    assert compact_schema(raw) == raw
    if raw:
        tool = b'{"inputSchema":%b}' % raw
        assert compact_tool(tool) == tool
    assert compact_tool(raw) == raw


def test_depth_is_bounded_and_costs_no_stack() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_frames() + 3 * MAX_DEPTH)
    try:
        assert compact_schema(nested(MAX_DEPTH)) == nested(MAX_DEPTH, "{}")
    finally:
        sys.setrecursionlimit(limit)
    for levels in (MAX_DEPTH + 1, 1_000, 100_000):
        assert compact_schema(nested(levels)) == nested(levels)
        tool = b'{"inputSchema":%b}' % nested(levels)
        assert compact_tool(tool) == tool


def _frames() -> int:
    frame, count = sys._getframe(), 1
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def test_length_is_bounded() -> None:
    fitting = b'{"title":"T","description":"%b"}' % (b"x" * (MAX_BYTES - 32))
    assert len(compact_schema(fitting)) < len(fitting) <= MAX_BYTES
    longer = fitting.replace(b"xx", b"xxx", 1) + b" " * 8
    assert len(longer) > MAX_BYTES and compact_schema(longer) == longer


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all that is looked at for something to drop."""
    sizes: list[int] = []
    without_idle = _Rules.without_idle

    def counted(self: Any, original: Any, schema: Any, *, is_root: bool = False) -> Any:
        sizes.append(len(schema))
        return without_idle(self, original, schema, is_root=is_root)

    monkeypatch.setattr(_Rules, "without_idle", counted)
    return sizes


def test_thousands_of_properties_are_looked_at_once_a_round(work: list[int]) -> None:
    properties = {f"p{at}": {"type": "string", "title": "T"} for at in range(5_000)}
    compacted = compact_schema(encoded({"type": "object", "properties": properties}))
    assert compacted == encoded({"type": "object", "properties": dict.fromkeys(properties, {"type": "string"})})
    assert len(work) == 2 * 5_001


@pytest.mark.parametrize("root", [{"items": {"$ref": "#/$defs/d0"}}, {}], ids=["needed", "unneeded"])
def test_a_long_chain_of_references_costs_its_length_a_round(root: Any, work: list[int]) -> None:
    definitions: dict[str, Any] = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}", "title": "T"} for at in range(2_500)}
    definitions["d2500"] = {"properties": {f"p{at}": {"type": "string"} for at in range(2_500)}}
    raw = encoded({**root, "$defs": definitions})
    assert compact_schema(raw) == (raw.replace(b',"title":"T"', b"") if root else b"{}")
    assert len(work) < 8 * 5_100


@pytest.mark.parametrize("length", [1, 2, 500])
def test_a_ring_of_references_stays_a_ring(length: int) -> None:
    definitions: dict[str, Any] = {f"d{at}": {"$ref": f"#/$defs/d{(at + 1) % length}"} for at in range(length)}
    raw = encoded({"properties": {name: {"$ref": f"#/$defs/{name}"} for name in definitions}, "$defs": definitions})
    assert compact_schema(raw) == raw


def test_pointers_that_are_long_or_odd_cost_no_more_than_their_length() -> None:
    odd = ["#/" + "a/" * 50_000, "#/anyOf/" + "9" * 10_000, "#/%" * 1_000, "#" * 1_000, "#/anyOf/\u0661", "#/anyOf/-1"]
    for pointer in odd:
        raw = encoded({"title": "T", "anyOf": [{}, {}], "not": {"$ref": pointer}})
        assert compact_schema(raw) == raw
