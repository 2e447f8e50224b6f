"""Takes secrets out of a server's entry, into the keyring or into files of their own; a `${…}` stands for each."""

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

from mcp_hub.app.limits import state_dir
from mcp_hub.config.load.interpolate import escaped, is_keyring_closed
from mcp_hub.config.load.secrets import is_secret, secret_arguments, secrets_of_url
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.extras import keyring_command, with_extra
from mcp_hub.files import LARGEST_OWN, read_file
from mcp_hub.masking import learn
from mcp_hub.onboarding.files import edit_file
from mcp_hub.types import JsonObject

FOLDER: Final = "secrets"
SERVICE: Final = "mcp-hub"
"""The name under which entries of the keyring belong to the hub."""

KEPT: Final = re.compile(rf"\$\{{(?:file:{FOLDER}|keyring:{SERVICE})/([^}}]*)\}}")
"""The `${…}` of a value that is kept, and the name of its place."""
KEPT_HERE: Final = f"${{file:{FOLDER}/}}"

_SERVICE: Final = "backends.SecretService."
_SILENT: Final = re.compile(r"backends\.(SecretService|Windows|fail|null)\.|PlaintextKeyring")
"""Kinds of keyrings that never open a dialog, or say whether they are locked."""

Keep = Callable[[str, str, str], str]
"""Called with a server, the name of a value, and the value; returns the `${…}` for it."""


class KeptSecrets:
    """Values by the `${…}` that stands for them; `store` writes all of them, none before.

    They are kept in the folder `secrets` beside the configuration, each in a file with the mode 0600, or with `keyring`
    in the keyring. Every value is masked from now on. A keyring that would ask for its password is refused unless it
    `asks`.
    """

    def __init__(self, folder: Path, *, keyring: bool = False, asks: bool = True) -> None:
        self._folder = folder / FOLDER
        self._keyring = _keyring(asks=asks) if keyring else None
        self._kept: dict[str, str] = {}

    def keep(self, server: str, name: str, value: str) -> str:
        """The `${…}` for a value of a server; the same value under the same name has one place."""
        return self.keep_as(f"{server}.{name}", value)

    def keep_as(self, name: str, value: str) -> str:
        """The `${…}` for a value that several servers may use."""
        learn([value])
        place = place_name(name)
        while self._found(place) not in (None, value):
            place += "_"
        self._kept[place] = value
        return f"${{file:{FOLDER}/{place}}}" if self._keyring is None else f"${{keyring:{SERVICE}/{place}}}"

    def place_of(self, name: str) -> tuple[str, bool]:
        """The `${…}` for a value that may come later, and whether it is there already.

        A file that is there wins; else the keyring if it can be used; else it is a file.
        """
        place = place_name(name)
        file = f"${{file:{FOLDER}/{place}}}"
        if self._keyring is None and (self._folder / place).exists():
            return file, True
        keyring = _usable_keyring() if self._keyring is None else self._keyring
        if keyring is None:
            return file, False
        has_value = not is_keyring_closed() and _get(keyring, place) is not None
        return f"${{keyring:{SERVICE}/{place}}}", has_value

    def command(self, reference: str) -> str:
        """The command by which a person sets the value of such a `${…}`."""
        kind, _, place = reference[2:-1].partition(":")
        if kind == "keyring":
            return keyring_command(SERVICE, place.rpartition("/")[2])
        file = self._folder / place.rpartition("/")[2]
        if sys.platform == "win32":
            return f"notepad {subprocess.list2cmdline([str(file)])}"
        else:
            return f"(umask 077; mkdir -p {shlex.quote(str(self._folder))}; cat > {shlex.quote(str(file))})"

    def keeps(self, reference: str) -> bool:
        """Whether `${reference}` stands for a value that is kept here, and not for one that was there before."""
        kind, _, place = reference.partition(":")
        folder = FOLDER if kind == "file" else SERVICE
        return place.partition("/")[0] == folder and place.partition("/")[2] in self._kept

    def filled(self, own: JsonObject) -> JsonObject:
        """The entry with values in place of the `${…}` that are kept here: it can start before they are written."""

        def of(tree: object) -> object:
            if isinstance(tree, dict):
                return {key: of(value) for key, value in tree.items()}
            if isinstance(tree, list):
                return [of(value) for value in tree]
            return KEPT.sub(self._value, tree) if isinstance(tree, str) else tree

        return {key: of(value) for key, value in own.items()}

    def _value(self, found: re.Match[str]) -> str:
        is_text = found.string[: found.start()].endswith("$")
        return found[0] if is_text or found[1] not in self._kept else escaped(self._kept[found[1]])

    def store(self, env: Mapping[str, str]) -> None:
        """Writes the values. Raises `ConfigError`."""
        self.store_in_keyring()
        for path, content in self.files().items():
            edit_file(path, partial(_content, content), state_dir(env))

    def files(self) -> dict[Path, bytes]:
        """The files of the values, as they are to be; none if those are kept in the keyring."""
        if self._keyring is not None:
            return {}
        # the reader removes one line break
        return {self._folder / place: f"{value}\n".encode() for place, value in self._kept.items()}

    def store_in_keyring(self) -> None:
        """Writes the values of the keyring, if they are kept there. Raises `ConfigError`."""
        if self._keyring is not None:
            for place, value in self._kept.items():
                _set(self._keyring, place, value)

    def _found(self, place: str) -> str | None:
        """The value that is kept there already."""
        if place in self._kept:
            return self._kept[place]
        if self._keyring is not None:
            return _get(self._keyring, place)
        try:
            return read_file(self._folder / place, LARGEST_OWN).data.decode().removesuffix("\n")
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return ""  # something else: it is left alone


def without_secrets(server: str, own: JsonObject, keep: Keep) -> JsonObject:
    """The entry with a `${…}` for each secret that is written in it; a `${…}` that is there stays."""
    done = dict(own)
    for key in ("env", "headers"):
        if isinstance(given := own.get(key), dict):
            done[key] = {name: _kept(server, name, value, keep) for name, value in given.items()}
    if isinstance(bearer := own.get("bearer"), str) and "${" not in bearer:
        done["bearer"] = keep(server, "bearer", bearer)
    oauth = own.get("oauth")
    if isinstance(oauth, dict) and isinstance(secret := oauth.get("client_secret"), str) and "${" not in secret:
        done["oauth"] = {**oauth, "client_secret": keep(server, "client_secret", secret)}
    if isinstance(args := own.get("args"), list) and all(isinstance(arg, str) for arg in args):
        found = secret_arguments(args)
        done["args"] = [
            _replaced(arg, found.get(index, ()), server, f"arg{index}", keep) for index, arg in enumerate(args)
        ]
    if isinstance(url := own.get("url"), str):
        done["url"] = _replaced(url, secrets_of_url(url), server, "url", keep)
    return done


def secrets_written(own: JsonObject) -> Iterator[str]:
    """The secrets that an entry holds, so that they can be masked before anything is shown."""
    found: list[str] = []

    def note(_: str, __: str, value: str) -> str:
        found.append(value)
        return ""

    without_secrets("", own, note)
    yield from found


def _content(content: bytes, _: bytes | None) -> bytes:
    return content


def _kept(server: str, name: str, value: object, keep: Keep) -> object:
    return keep(server, name, value) if isinstance(value, str) and is_secret(name, value) else value


def _replaced(text: str, secrets: Collection[str], server: str, name: str, keep: Keep) -> str:
    if "${" in text or not secrets:
        return text
    found = sorted(secrets, key=lambda secret: (-len(secret), secret))
    names = {secret: name if number == 0 else f"{name}.{number}" for number, secret in enumerate(found)}
    return re.sub("|".join(map(re.escape, found)), lambda match: keep(server, names[match[0]], match[0]), text)


def place_name(name: str) -> str:
    """The name of a file or of an entry for a value."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "value"


def _usable_keyring() -> Any:
    """The keyring of the system; None if it is not installed, locked, or a stand-in that keeps nothing.

    Where it must not be opened, nobody knows whether it is locked.
    """
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
        said = f"no keyring is installed. Install it with: {with_extra('keyring')}"
        raise ConfigError(ConfigFinding("keyring_unavailable", said)) from None
    if not asks and may_open_dialog():
        said = "the keyring may ask for its password, and --yes opens no dialog. Unlock it, or leave out --yes."
        raise ConfigError(ConfigFinding("keyring_unavailable", said))
    return keyring


def may_open_dialog() -> bool:
    """Whether a look into the keyring could ask a person for a password: it is locked, or of a kind that cannot say."""
    try:
        keyring: Any = importlib.import_module("keyring")
        backend = keyring.get_keyring()
    except Exception:  # there is none; each system's keyring has errors of its own
        return False
    for one in getattr(backend, "backends", [backend]):
        kind = f"{type(one).__module__}.{type(one).__qualname__}"
        if _SERVICE in kind and _is_service_locked(one) or _SILENT.search(kind) is None:
            return True
    return False


def _is_service_locked(backend: Any) -> bool:
    """Whether the collection of the Secret Service is locked, or not there; it is not made."""
    try:
        service = importlib.import_module("secretstorage")
        with closing(service.dbus_init()) as bus:
            name = getattr(backend, "preferred_collection", None)
            found = service.Collection(bus, name) if name else service.get_collection_by_alias(bus, "default")
            return bool(found.is_locked())
    except Exception:  # of D-Bus, too
        return True


def _get(keyring: Any, name: str) -> str | None:
    try:
        found = keyring.get_password(SERVICE, name)
    except Exception as problem:  # each system's keyring has errors of its own
        raise _unavailable("read", problem) from None
    return found if isinstance(found, str) else None


def _set(keyring: Any, name: str, value: str) -> None:
    try:
        keyring.set_password(SERVICE, name, value)
    except Exception as problem:
        raise _unavailable("written", problem) from None


def _unavailable(done: str, problem: Exception) -> ConfigError:
    said = f"the keyring cannot be {done}: {type(problem).__name__}. Leave out --keyring to keep secrets in files."
    return ConfigError(ConfigFinding("keyring_unavailable", said))
