"""The short form of each case of `make attach`."""

import sys

import pytest

from rigs.attach.cases import CASES, LONG, run

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.mark.parametrize("name", [name for name in CASES if name not in LONG])
@pytest.mark.first(14)
async def test_attached_hub_keeps_its_promise(name: str) -> None:
    outcome = await run(name, is_short=True)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.fault == ""
