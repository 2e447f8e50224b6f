"""What is secret of a configuration, where it may come from, and what `check` has to say of it."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_hub import masking
from mcp_hub.config.load.interpolate import Unresolved, resolve
from mcp_hub.config.load.load import Loaded, load, parse
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown, shown_all

ENV = {"TOKEN": "s3cr3t-token", "HOME": "/home/alice", "MODE": "fast"}


def loaded(text: str, base: Path = Path("/base")) -> Loaded:
    return parse(text, "s", ENV, base)


def test_what_is_named_like_a_secret_is_one_though_the_file_holds_it() -> None:
    found = loaded(
        "servers:\n"
        "  a: {command: x, env: {API_KEY: literal-key, DB_PASSWORD: literal-pass, REGION: europe-west, TOKEN: abc}}\n"
        "  b: {url: 'https://x.example/mcp?api_key=literal-query&region=europe-west&sig=literal-sig'}\n"
    )
    assert found.secrets == {"literal-key", "literal-pass", "literal-query", "literal-sig"}


def test_what_came_from_outside_is_secret_in_urls_too() -> None:
    found = loaded("servers: {b: {url: 'https://x.example/${TOKEN}/mcp'}}")
    assert found.secrets == {"s3cr3t-token"} and "s3cr3t" not in repr(found)


def test_a_file_that_is_loaded_makes_its_secrets_known_to_the_whole_process(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x, env: {KEY: '${TOKEN}'}}}")
    load(path, ENV)
    assert masking.hide("a s3cr3t-token b") == "a *** b"


def test_settings_that_are_printed_show_no_secret_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x, description: 'of ${TOKEN}', rename: {x: '${TOKEN}'}}}")
    found = load(path, ENV)
    assert "s3cr3t" not in f"{found!r} {found.settings!r} {found.settings}"
    assert "'of ***'" in repr(found.settings)


def test_secrets_in_arguments_are_a_note_for_check() -> None:
    found = loaded("servers:\n  a:\n    command: x\n    args: ['${HOME}/w', '--key=${TOKEN}', '${MODE}', -v]\n")
    (note,) = found.notes
    assert shown(note) == "s:4: servers.a.args[1] [secret_in_arguments]"
    assert found.warnings == () and "s3cr3t" not in str(note)


def test_tokens_that_can_be_guessed_are_a_note_for_check() -> None:
    found = loaded("hub: {tokens: [{token: tooshort, principal: a}, {token: 0123456789abcdef, principal: b}]}")
    assert shown_all(found.notes) == ["s:1: hub.tokens[0].token [guessable_token]"]


def test_a_variable_that_is_not_set_is_named_with_its_place_and_no_value() -> None:
    with pytest.raises(ConfigError) as caught:
        loaded("servers: {a: {command: x, env: {A: '${TOKEN}${GONE}'}}}")
    assert shown_all(caught) == ["s:1: servers.a.env.A [variable_not_set]"] and "GONE" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("text", ["a\\0b", "a\\nb"])
def test_an_argument_is_one_line_without_nul(text: str) -> None:
    with pytest.raises(ConfigError, match=r"servers\.a\.args\[0\]: .*\[invalid_value\]$"):
        loaded(f'servers: {{a: {{command: x, args: ["{text}"]}}}}')


def keyring(get: Callable[[str, str], Any]) -> SimpleNamespace:
    return SimpleNamespace(get_password=get)


def test_an_entry_of_the_keyring_is_filled_in_and_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {("mcp-hub", "github"): "from-keyring", ("https://x/y", "me"): "another-one"}
    monkeypatch.setitem(sys.modules, "keyring", keyring(lambda service, name: entries.get((service, name))))
    assert resolve("a ${keyring:mcp-hub/github}", {}, Path("/"))[:2] == ("a from-keyring", frozenset({"from-keyring"}))
    assert resolve("${keyring:https://x/y/me}", {}, Path("/"))[0] == "another-one"
    with pytest.raises(Unresolved, match="no mcp-hub/gone. Store it with: keyring set mcp-hub gone"):
        resolve("${keyring:mcp-hub/gone}", {}, Path("/"))


@pytest.mark.parametrize("text", ["${keyring:}", "${keyring:x}", "${keyring:/x}", "${keyring:x/}"])
def test_an_entry_needs_service_and_name(text: str) -> None:
    with pytest.raises(Unresolved, match=r"expected \$\{keyring:service/name\}"):
        resolve(text, {}, Path("/"))


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(Unresolved, match=r"pip install 'mcp-hub\[keyring\]'"):
        resolve("${keyring:a/b}", {}, Path("/"))


def test_a_keyring_that_fails_says_how_and_nothing_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(service: str, name: str) -> str:
        raise RuntimeError("the password is s3cr3t")

    monkeypatch.setitem(sys.modules, "keyring", keyring(locked))
    with pytest.raises(Unresolved) as caught:
        resolve("${keyring:a/b}", {}, Path("/"))
    assert str(caught.value) == "the keyring cannot be read: RuntimeError"
