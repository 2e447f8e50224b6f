"""The lists of one caller, whose connection is not the one that everybody is listed."""

import pytest

from mcp_hub.types import Era, Kind, Snapshot
from mcp_hub.upstreams.lists.list_union import ListUnion, settled


def tool(name: str, **more: object) -> bytes:
    members = "".join(f',"{key}":{value}' for key, value in more.items())
    return f'{{"name":"{name}"{members}}}'.encode()


def lists(*tools: bytes) -> Snapshot:
    return Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: tools})


@pytest.mark.parametrize(
    ("listed", "own", "seen"),
    [
        ([tool("a")], [tool("a")], None),
        ([tool("a"), tool("b")], [tool("a")], None),
        ([tool("a"), tool("b")], [tool("b"), tool("a")], None),
        ([tool("a")], [tool("a"), tool("b")], [tool("a"), tool("b")]),
        ([tool("a", v=1), tool("c")], [tool("b"), tool("a", v=2)], [tool("a", v=2), tool("c"), tool("b")]),
        ([], [tool("a")], [tool("a")]),
        ([b"7"], [b"8"], [b"7", b"8"]),
    ],
)
def test_union_by_name_has_the_callers_tools(listed: list[bytes], own: list[bytes], seen: list[bytes] | None) -> None:
    shown = ListUnion().of(lists(*listed), lists(*own))
    assert (shown and list(shown.lists[Kind.TOOL])) == seen
    assert shown is None or shown.is_apart


def test_a_tool_that_the_callers_connection_no_longer_lists_is_gone_for_this_caller() -> None:
    union, everybody = ListUnion(), lists(tool("a"), tool("b"))
    assert union.of(everybody, lists(tool("a"))) is None
    assert union.of(everybody, lists(tool("a"), tool("b"))) is None
    shown = union.of(everybody, lists(tool("a")))
    assert shown is not None and shown.lists[Kind.TOOL] == (tool("a"),)


def test_the_same_lists_give_the_same_object_and_nothing_is_seen_before_both_are_known() -> None:
    union, everybody, caller = ListUnion(), lists(tool("a")), lists(tool("b"))
    assert union.of(everybody, caller) is union.of(everybody, caller)
    assert union.of(None, caller) is None and union.of(everybody, None) is None


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (b'{"name":"a","x":1}', b'{"x":1,"name":"a"}', True),
        (b'{"name":"a","x":1}', b'{"x":2,"name":"a"}', False),
        (b'{"name":"a","x":1}', b'{"x":true,"name":"a"}', False),
        (b'{"name":"a","x":1}', b'{"x":1,"name":"b"}', False),
        (b'{"name":"a","x":1e999}', b'{"x":1e999,"name":"a"}', False),
    ],
)
def test_a_definition_that_says_the_same_keeps_its_bytes(before: bytes, after: bytes, kept: bool) -> None:
    assert settled(Kind.TOOL, (before,), (after, after)) == ((before if kept else after),) * 2
