"""A short `make fuzz`: a second of each target from one seed; and the fuzzer, which has to find what is there."""

import time
from collections.abc import Callable

import pytest

from tests.fuzz.search import Search, drawn, fault_of, smaller
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_in_a_second(name: str) -> None:
    search = Search(TARGETS[name], seed=1)
    search.run(1.0)
    assert [(found.data, found.report) for found in search.findings] == []
    assert search.inputs > 10
    assert drawn(TARGETS[name], 1, 7) == drawn(TARGETS[name], 1, 7)


def _raises(data: bytes) -> None:
    if b"ab" in data:
        raise KeyError("ab")


def _hangs(data: bytes) -> None:
    until = time.process_time() + 20
    while b"x" in data and time.process_time() < until:
        pass


@pytest.mark.parametrize(("check", "place", "data"), [(_raises, "KeyError at", b"ab"), (_hangs, "hang", b"x")])
def test_a_fault_is_found_and_made_small(
    check: Callable[[bytes], None], place: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.search.HANG", 0.05)
    target = Target("t", lambda rng: bytes(rng.choices(b"abcx", k=rng.randrange(40))), check)
    found = next(found for number in range(1000) if (found := fault_of(target, drawn(target, 1, number))) is not None)
    assert found.place.startswith(place)
    assert smaller(target, found).data == data
