"""Replaces secrets in a server's entry by `${…}`; keeps them in keyring or files."""

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from mcp_hub.config.load.interpolate import escaped, is_keyring_closed
from mcp_hub.config.load.secrets import is_secret, secret_arguments, secrets_of_url
from mcp_hub.config.trust import SECRETS, state_dir
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.extras import keyring_command, with_extra
from mcp_hub.files import LARGEST_OWN, read_file
from mcp_hub.masking import learn
from mcp_hub.onboarding.files import edit_file
from mcp_hub.types import JsonObject

SERVICE: Final = "mcp-hub"
"""The hub's service name in the keyring."""

KEPT: Final = re.compile(rf"\$\{{(?:file:{SECRETS}|keyring:{SERVICE})/([^}}]*)\}}")
"""The `${…}` of a kept value, with the name of its place."""
KEPT_HERE: Final = f"${{file:{SECRETS}/}}"

_SERVICE: Final = "backends.SecretService."
_SILENT: Final = re.compile(r"backends\.(SecretService|Windows|fail|null)\.|PlaintextKeyring")
"""Keyrings that never open a dialog, or tell whether they are locked."""

Keep = Callable[[str, str, str], str]
"""Called with server, name and value; returns the `${…}`."""


class KeptSecrets:
    """Values by `${…}`, masked at once, written by `store`.

    They go to files of mode 0600 in `secrets` beside the configuration, or with `keyring` to the keyring, which may ask
    for a password only if it `asks`.
    """

    def __init__(self, folder: Path, *, keyring: bool = False, asks: bool = True) -> None:
        self._folder = folder / SECRETS
        self._keyring = _keyring(asks=asks) if keyring else None
        self._values: dict[str, str] = {}

    def keep(self, server: str, name: str, value: str) -> str:
        """The `${…}` for a server's value; equal values of one name share it."""
        return self.keep_as(f"{server}.{name}", value)

    def keep_as(self, name: str, value: str) -> str:
        """The `${…}` for a value that servers may share."""
        learn([value])
        key = place_name(name)
        while self._stored(key) not in (None, value):
            key += "_"
        self._values[key] = value
        return f"${{file:{SECRETS}/{key}}}" if self._keyring is None else f"${{keyring:{SERVICE}/{key}}}"

    def place_of(self, name: str) -> tuple[str, bool]:
        """The `${…}` for a future value, and whether it exists. An existing file wins, then a usable keyring."""
        key = place_name(name)
        file = f"${{file:{SECRETS}/{key}}}"
        if self._keyring is None and (self._folder / key).exists():
            return file, True
        keyring = _usable_keyring() if self._keyring is None else self._keyring
        if keyring is None:
            return file, False
        has_value = not is_keyring_closed() and _get(keyring, key) is not None
        return f"${{keyring:{SERVICE}/{key}}}", has_value

    def command(self, reference: str) -> str:
        """The shell command that sets the value of a `${…}`."""
        kind, _, key = reference[2:-1].partition(":")
        if kind == "keyring":
            return keyring_command(SERVICE, key.rpartition("/")[2])
        file = self._folder / key.rpartition("/")[2]
        if sys.platform == "win32":
            return f"notepad {subprocess.list2cmdline([str(file)])}"
        else:
            return f"(umask 077; mkdir -p {shlex.quote(str(self._folder))}; cat > {shlex.quote(str(file))})"

    def keeps(self, reference: str) -> bool:
        """Whether `${reference}` stands for a value kept here, not for an older one."""
        kind, _, key = reference.partition(":")
        folder = SECRETS if kind == "file" else SERVICE
        return key.partition("/")[0] == folder and key.partition("/")[2] in self._values

    def filled(self, entry: JsonObject) -> JsonObject:
        """The entry with the values kept here."""

        def of(tree: object) -> object:
            if isinstance(tree, dict):
                return {key: of(value) for key, value in tree.items()}
            if isinstance(tree, list):
                return [of(value) for value in tree]
            return KEPT.sub(self._value, tree) if isinstance(tree, str) else tree

        return {key: of(value) for key, value in entry.items()}

    def _value(self, match: re.Match[str]) -> str:
        is_text = match.string[: match.start()].endswith("$")
        return match[0] if is_text or match[1] not in self._values else escaped(self._values[match[1]])

    def store(self, env: Mapping[str, str]) -> None:
        """Writes the values. Raises `ConfigError`."""
        self.store_in_keyring()
        for path, content in self.files().items():
            edit_file(path, partial(_content, content), state_dir(env))

    def files(self) -> dict[Path, bytes]:
        """Contents by file; empty with the keyring."""
        if self._keyring is not None:
            return {}
        # the reader removes one line break
        return {self._folder / key: f"{value}\n".encode() for key, value in self._values.items()}

    def store_in_keyring(self) -> None:
        if self._keyring is not None:
            for key, value in self._values.items():
                _set(self._keyring, key, value)

    def _stored(self, key: str) -> str | None:
        if key in self._values:
            return self._values[key]
        if self._keyring is not None:
            return _get(self._keyring, key)
        try:
            return read_file(self._folder / key, LARGEST_OWN).data.decode().removesuffix("\n")
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return ""  # something else: it is left alone


def without_secrets(server: str, entry: JsonObject, keep: Keep) -> JsonObject:
    """The entry with a `${…}` for each secret."""
    changed = dict(entry)
    for key in ("env", "headers"):
        if isinstance(values := entry.get(key), dict):
            changed[key] = {name: _kept_secret(server, name, value, keep) for name, value in values.items()}
    if isinstance(bearer := entry.get("bearer"), str) and "${" not in bearer:
        changed["bearer"] = keep(server, "bearer", bearer)
    oauth = entry.get("oauth")
    if isinstance(oauth, dict) and isinstance(secret := oauth.get("client_secret"), str) and "${" not in secret:
        changed["oauth"] = {**oauth, "client_secret": keep(server, "client_secret", secret)}
    if isinstance(args := entry.get("args"), list) and all(isinstance(arg, str) for arg in args):
        secrets = secret_arguments(args)
        changed["args"] = [
            _replaced(arg, secrets.get(index, ()), server, f"arg{index}", keep) for index, arg in enumerate(args)
        ]
    if isinstance(url := entry.get("url"), str):
        changed["url"] = _replaced(url, secrets_of_url(url), server, "url", keep)
    return changed


def secrets_written(entry: JsonObject) -> Iterator[str]:
    """The secrets that stand in an entry."""
    names: list[str] = []

    def note(_: str, __: str, value: str) -> str:
        names.append(value)
        return ""

    without_secrets("", entry, note)
    yield from names


def _content(content: bytes, _: bytes | None) -> bytes:
    return content


def _kept_secret(server: str, name: str, value: object, keep: Keep) -> object:
    return keep(server, name, value) if isinstance(value, str) and is_secret(name, value) else value


def _replaced(text: str, secrets: Collection[str], server: str, name: str, keep: Keep) -> str:
    if "${" in text or not secrets:
        return text
    longest_first = sorted(secrets, key=lambda secret: (-len(secret), secret))
    names = {secret: name if number == 0 else f"{name}.{number}" for number, secret in enumerate(longest_first)}
    return re.sub("|".join(map(re.escape, longest_first)), lambda match: keep(server, names[match[0]], match[0]), text)


def place_name(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "value"


def _usable_keyring() -> Any:
    """None if missing, locked, or without storage."""
    try:
        keyring = importlib.import_module("keyring")
        backend = getattr(keyring, "get_keyring", None)
        if backend is not None and backend().priority <= 0:
            return None
        if not is_keyring_closed():
            keyring.get_password(SERVICE, SERVICE)
    except Exception:  # each system's keyring has errors of its own
        return None
    return keyring


def _keyring(*, asks: bool) -> Any:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        message = f"no keyring is installed. Install it with: {with_extra('keyring')}"
        raise ConfigError(ConfigFinding("keyring_unavailable", message)) from None
    if not asks and may_open_dialog():
        message = "the keyring may ask for its password, and --yes opens no dialog. Unlock it, or leave out --yes."
        raise ConfigError(ConfigFinding("keyring_unavailable", message))
    return keyring


def may_open_dialog() -> bool:
    """Whether a keyring lookup could ask for a password."""
    try:
        keyring: Any = importlib.import_module("keyring")
        backend = keyring.get_keyring()
    except Exception:  # there is none; each system's keyring has errors of its own
        return False
    for member in getattr(backend, "backends", [backend]):
        kind = f"{type(member).__module__}.{type(member).__qualname__}"
        if _SERVICE in kind and _is_service_locked(member) or _SILENT.search(kind) is None:
            return True
    return False


def _is_service_locked(backend: Any) -> bool:
    try:
        service = importlib.import_module("secretstorage")
        with closing(service.dbus_init()) as bus:
            name = getattr(backend, "preferred_collection", None)
            collection = service.Collection(bus, name) if name else service.get_collection_by_alias(bus, "default")
            return bool(collection.is_locked())
    except Exception:  # of D-Bus, too
        return True


def _get(keyring: Any, name: str) -> str | None:
    try:
        value = keyring.get_password(SERVICE, name)
    except Exception as problem:  # each system's keyring has errors of its own
        raise _unavailable("read", problem) from None
    return value if isinstance(value, str) else None


def _set(keyring: Any, name: str, value: str) -> None:
    try:
        keyring.set_password(SERVICE, name, value)
    except Exception as problem:
        raise _unavailable("written", problem) from None


def _unavailable(action: str, problem: Exception) -> ConfigError:
    message = f"the keyring cannot be {action}: {type(problem).__name__}. Leave out --keyring to keep secrets in files."
    return ConfigError(ConfigFinding("keyring_unavailable", message))
