"""The keyrings of three systems by the one interface of `keyring`: the same cases, with its calls noted."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets, may_open_dialog

KINDS = {"linux": "SecretService", "darwin": "macOS", "win32": "Windows"}
"""The module of each backend of `keyring`."""


@pytest.fixture(params=KINDS)
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The calls of a keyring that holds nothing, of a system that this is taken to be."""
    noted: list[tuple[str, ...]] = []
    backend = type("Keyring", (), {"priority": 5, "__module__": f"keyring.backends.{KINDS[request.param]}"})
    module = SimpleNamespace(
        get_keyring=backend,
        get_password=lambda service, name: noted.append(("get", service, name)),
        set_password=lambda service, name, value: noted.append(("set", service, name, value)),
    )
    bus = SimpleNamespace(close=lambda: None)
    collection = SimpleNamespace(is_locked=lambda: False)
    service = SimpleNamespace(dbus_init=lambda: bus, get_collection_by_alias=lambda *about: collection)
    monkeypatch.setitem(sys.modules, "keyring", module)
    monkeypatch.setitem(sys.modules, "secretstorage", service)
    monkeypatch.setattr(sys, "platform", request.param)
    return noted


def test_a_value_is_looked_for_once_and_written_when_all_are_known(
    calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    kept = KeptSecrets(tmp_path, keyring=True)
    assert kept.keep("git", "TOKEN", "a value of the test") == "${keyring:mcp-hub/git.TOKEN}"
    assert calls == [("get", "mcp-hub", "git.TOKEN")] and list(tmp_path.iterdir()) == []
    kept.store({})
    assert calls[-1] == ("set", "mcp-hub", "git.TOKEN", "a value of the test")


def test_only_the_keychain_of_macos_may_ask_and_is_refused_where_nobody_answers(
    calls: list[tuple[str, ...]], tmp_path: Path
) -> None:
    assert may_open_dialog() == (sys.platform == "darwin")
    if sys.platform == "darwin":
        with pytest.raises(ConfigError, match="opens no dialog"):
            KeptSecrets(tmp_path, keyring=True, asks=False)
    else:
        KeptSecrets(tmp_path, keyring=True, asks=False)
    assert calls == []
