"""Fixtures of the conformance tests."""

import pytest

from tests.clients.install import NotInstalled, node, node_package

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def suite() -> list[str]:
    """The command line of the suite; the tests are skipped where it cannot be installed."""
    try:
        return [str(node()), str(node_package(SUITE) / "dist" / "index.js")]
    except NotInstalled as reason:
        pytest.skip(str(reason))
