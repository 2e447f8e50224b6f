"""Who is let in: counts and rates by principal, on a clock that a test moves."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from mcp_hub.errors import Busy
from mcp_hub.fronts.http.admission import Admission, Rate
from tests.unit.fakes import HandClock


def taken(rate: Rate, principal: str = "a") -> int:
    """How many may come now."""
    count = 0
    while True:
        try:
            rate.take(principal)
        except Busy as refused:
            assert refused.is_rate and refused.data == {
                "limit": "rate",
                "value": 2,
                "setting": "hub.http.rate",
                "retryAfter": 1,
            }
            return count
        count += 1


def test_rate_gives_ten_seconds_worth_at_once_and_then_so_many_a_second() -> None:
    clock = HandClock()
    rate = Rate(2, "things", "hub.http.rate", clock)
    assert taken(rate) == 20 and taken(rate) == 0
    assert taken(rate, "b") == 20
    clock.time += 1.5
    assert taken(rate) == 3
    clock.time += 0.4
    assert taken(rate) == 0
    clock.time += 1000
    assert taken(rate) == 20


def test_rate_of_nothing_is_no_bound_and_forgets_the_longest_unseen() -> None:
    Rate(0, "things", "x", HandClock()).take("a")
    rate = Rate(1, "things", "x", HandClock())
    for _ in range(10):
        rate.take("first")
    for number in range(4096):
        rate.take(f"p{number}")
    rate.take("first")


def test_one_principal_has_so_many_requests_and_leaves_room_for_others() -> None:
    admission = Admission(HandClock(), requests=2)
    admission.enter("a")
    admission.enter("a")
    with pytest.raises(Busy, match=r"2 requests .* raise hub.http.requests_per_principal") as refused:
        admission.enter("a")
    assert not refused.value.is_rate
    admission.enter("b")
    admission.leave("a")
    admission.enter("a")


def test_who_comes_too_fast_has_nothing_under_way() -> None:
    admission = Admission(HandClock(), requests=1, request_rate=1)
    for _ in range(10):
        admission.enter("a")
        admission.leave("a")
    for _ in range(3):
        with pytest.raises(Busy, match="more than 1 requests a second"):
            admission.enter("a")


async def received(admission: Admission, *sizes: int, principal: str = "a", **headers: str) -> Any:
    """The counted body after these parts."""
    parts = [b"x" * size for size in sizes]

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": True}

    encoded = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    body = admission.body(principal, encoded, receive)
    for _ in sizes:
        assert body is not None
        await body()
    return body


async def test_large_bodies_of_one_principal_are_counted_until_their_requests_are_over() -> None:
    admission = Admission(HandClock(), bodies=1000)
    first = await received(admission, 600, content_length="100000")
    second = await received(admission, 200, 200, transfer_encoding="chunked")
    with pytest.raises(Busy, match="over 1000 bytes"):
        await received(admission, 1, content_length="100000")
    await received(admission, 1000, content_length="100000", principal="b")
    second.close()
    third = await received(admission, 400, content_length="100000")
    first.close()
    third.close()
    await received(admission, 1000, content_length="100000")
