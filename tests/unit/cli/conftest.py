"""Fixtures for tests of the commands."""

import pytest

from mcp_hub.sandbox.confinement import ABI_LIMIT


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a sandbox, so that `add` and `import` start nothing. Tests about sandboxes take it back."""
    monkeypatch.setenv(ABI_LIMIT, "0")
