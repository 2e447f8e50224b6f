"""Fixtures of the conformance tests."""

import pytest

from tests.conformance.install import Unavailable, suite_command


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def suite() -> list[str]:
    """The command line of the suite; the tests are skipped where it cannot be installed."""
    try:
        return suite_command()
    except Unavailable as reason:
        pytest.skip(str(reason))
