"""The short form of each case of `make attach`, those first that no other test is about."""

import sys

import pytest

from rigs.attach.cases import CASES, LONG, run

FIRST = (
    "clients with other search paths",
    "a session of its own",
    "a scope of its own under systemd",
    "a stopped hub is waited for",
)
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.mark.first(len(FIRST))
@pytest.mark.parametrize("name", [*FIRST, *(name for name in CASES if name not in {*FIRST, *LONG})])
async def test_attached_hub_keeps_its_promise(name: str) -> None:
    outcome = await run(name, is_short=True)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.fault == ""
