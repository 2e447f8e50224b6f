"""Versions that go up, and the bounded ring of notices."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from mcp_hub import notices as module
from mcp_hub.notices import Notices

pytestmark = pytest.mark.anyio

A, B = ("s", "x:a"), ("s", "x:b")


def test_a_reader_gets_what_was_noted_after_its_place_once_for_each_uri() -> None:
    changes = Notices()
    changes.note(A, "x:a", b'{"n":1}')
    place = changes.noted
    assert changes.notices(A, 0) == [("x:a", b'{"n":1}')]
    assert changes.notices(A, place) == changes.notices(B, 0) == []
    changes.note(A, "x:a", b'{"n":2}')
    changes.note(A, "x:a", b'{"n":3}')
    changes.note(B, "x:b")
    assert changes.notices(A, place) == changes.notices(A, 0) == [("x:a", b'{"n":3}')]
    assert changes.notices(B, place) == [("x:b", b"{}")]


def test_parts_of_a_resource_are_distinguished_up_to_a_limit() -> None:
    changes = Notices()
    for part in range(module._MOST_PARTS):
        changes.note(A, f"x:a/{part}")
    place = changes.noted
    changes.note(A, "x:a/0")
    assert [uri for uri, _ in changes.notices(A, 0)] == [f"x:a/{n}" for n in (*range(1, module._MOST_PARTS), 0)]
    assert changes.notices(A, place) == [("x:a/0", b"{}")]
    changes.note(A, "x:a/more", b'{"n":1}')
    assert changes.notices(A, 0) == changes.notices(A, place) == [("x:a", b"{}")]


def test_a_reader_that_fell_behind_takes_everything_for_updated() -> None:
    changes = Notices()
    changes.note(A, "x:a")
    place = changes.noted
    changes.note(B, "x:b")
    for number in range(module._MOST_RESOURCES):
        changes.note(("s", f"x:{number}"), f"x:{number}")
    assert changes.notices(A, place) == [("x:a", b"{}")]
    assert changes.notices(("s", "x:never"), 0) == [("x:never", b"{}")]
    assert changes.notices(A, place + 1) == changes.notices(B, place + 1) == [], "what was lost, this one has read"
    assert len(changes._notices) == module._MOST_RESOURCES


def test_params_that_are_too_long_are_left_out() -> None:
    changes = Notices()
    changes.note(A, "x:a", b" " * (module._MOST_BYTES + 1))
    assert changes.notices(A, 0) == [("x:a", b"{}")]


async def test_each_waiter_is_woken_by_what_it_waits_for() -> None:
    changes = Notices()
    woken: list[str] = []

    async def lists() -> None:
        await changes.wait(0)
        woken.append("lists")

    async def anything(name: str, version: int, noted: int) -> None:
        await changes.wait_any(version, noted)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lists)
        tasks.start_soon(anything, "first notice", 1, 0)
        tasks.start_soon(anything, "second notice", 1, 1)
        tasks.start_soon(anything, "version", 0, 9)
        one: Callable[[], None] = lambda: changes.note(A, "x:a")  # noqa: E731  so that it has a type
        for change in (one, one, changes.bump):
            await anyio.wait_all_tasks_blocked()
            change()
            await anyio.wait_all_tasks_blocked()
            woken.append("|")
    assert woken[:4] == ["first notice", "|", "second notice", "|"]
    assert sorted(woken[4:]) == ["lists", "version", "|"]
