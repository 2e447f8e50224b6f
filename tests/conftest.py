"""Fixtures for every test."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from mcp_hub import masking

settings.register_profile("suite", max_examples=50)  # what is not told otherwise; `make fuzz` is for the long search
settings.load_profile("suite")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """What one test's configuration calls secret is plain text to the next."""
    yield
    masking.forget()
