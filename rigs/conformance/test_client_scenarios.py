"""The suite's client scenarios: its servers as the hub's upstream, reached through `client.py`."""

import sys
from collections.abc import Sequence

import pytest

from rigs.conformance.suite import run_client_scenario

pytestmark = pytest.mark.anyio

HANDSHAKE = ("2025-06-18", "2025-11-25")
NEWEST_HANDSHAKE = ("2025-11-25",)
MODERN = ("2026-07-28",)

SCENARIOS: dict[str, tuple[str | None, ...]] = {
    "initialize": HANDSHAKE,
    "tools_call": HANDSHAKE + MODERN,
    "elicitation-sep1034-client-defaults": NEWEST_HANDSHAKE,
    "sse-retry": NEWEST_HANDSHAKE,
    "json-schema-2020-12-preservation": NEWEST_HANDSHAKE + MODERN,
    "json-schema-ref-no-deref": MODERN,
    "request-metadata": MODERN,
    "sep-2322-client-request-state": MODERN,
    "http-standard-headers": MODERN,
    "http-custom-headers": MODERN,
    "http-invalid-tool-headers": MODERN,
    "sep-2640-client-no-prefetch": (None,),
}
"""Every client scenario that is not about authorization, with the versions that it applies to; None: an extension.

Of those about skills the one that is not about a host: a hub never reads the files of a skill by itself.
"""


@pytest.mark.parametrize(
    ("scenario", "version"), [(name, version) for name, versions in SCENARIOS.items() for version in versions]
)
async def test_client_scenario_passes(suite: Sequence[str], scenario: str, version: str | None) -> None:
    command = f"{sys.executable} -m rigs.conformance.client"
    run = await run_client_scenario(suite, command, scenario, version)
    print(version, run, run.noise)
    assert not run.complaints, "\n".join(run.complaints)
    assert [each.scenario for each in run.verdicts] == [scenario]
