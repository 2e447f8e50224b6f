"""Fixtures of the conformance tests."""

import pytest

from rigs.clients.install import NotInstalled
from rigs.conformance.suite import suite_command


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def suite() -> list[str]:
    """The command line of the suite; the tests are skipped where it cannot be installed."""
    try:
        return suite_command()
    except NotInstalled as reason:
        pytest.skip(str(reason))
