"""Short forms of the cases of `make attach` that no other test has."""

import sys

import pytest

from rigs.attach.cases import run

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.mark.parametrize(
    "name",
    [
        "clients with other search paths",
        "a session of its own",
        "a scope of its own under systemd",
        "a stopped hub is waited for",
    ],
)
async def test_attached_hub_keeps_its_promise(name: str) -> None:
    outcome = await run(name, is_short=True)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.fault == ""
