"""Fixtures for every test."""

from collections.abc import Iterator

import pytest

from mcp_hub import masking


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """What one test's configuration calls secret is plain text to the next."""
    yield
    masking.forget()
