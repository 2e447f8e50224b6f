"""Fills in `${…}` after parsing. References do not nest; inserted text is not searched.

* `${VAR}`, `${env:VAR}`, `${VAR:-default}` (also if empty)
* `${file:path}`, without one trailing newline
* `${keyring:service/name}`
* `${cmd:program argument}`: runs when the server starts
* `${client.cwd}`, `${client.root}`: stay until `fill_client`
* `${client.principal}`, `${account:NAME}`: of the caller's account, known when its process or connection starts
* `$${`: a literal `${`
"""

import errno
import importlib
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mcp_hub.config.findings import DataPath, Finding
from mcp_hub.config.load.secrets import is_secret
from mcp_hub.config.schema.servers import COMMAND_OUTPUT, AccountLookup, CommandLookup, Lookup
from mcp_hub.config.trust import problem_of_secret
from mcp_hub.extras import keyring_command, with_extra
from mcp_hub.files import read_file
from mcp_hub.types import Cause

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST_FILE = 64 * 1024  # a key or a certificate chain fits; a device or a log does not
CLIENTS_FOLDER: Final = "${client.cwd}"
"""The reference for the folder of a client, as it is written."""
OF_CLIENTS: Final = frozenset({"client.cwd", "client.root"})
"""References to client folders, filled in when a process starts for the client."""
_FOR_CLIENTS: Final = frozenset({"cwd", "args", "env"})
_OF_CLIENT: Final = re.compile(r"(\$+)\{client\.(cwd|root)\}")
"""In a filled text, an odd number of `$` begins a reference; each pair is one `$`."""
_BEFORE_CLIENT: Final = re.compile(r"\$+(?=\{client\.(?:cwd|root)\})|\$+\Z")
_is_closed: Final[ContextVar[bool]] = ContextVar("keyring_closed", default=False)
_COMMAND: Final = "cmd:"
_OF_COMMANDS: Final = frozenset({"env", "args", "headers", "bearer"})
"""Server keys that may have command outputs, since they are needed only at its start."""
_ACCOUNT: Final = "account:"
_PRINCIPAL: Final = "client.principal"
_OF_ACCOUNTS: Final = frozenset({"env", "headers", "bearer"})
_OF_PRINCIPALS: Final = frozenset({"args", "env", "headers"})
"""Server keys that may have values of accounts, and the caller's principal."""
NO_COMMANDS: Final = Cause("command_refused", "only a configuration file of your own runs the commands of ${cmd:…}")
_NOT_HERE: Final = Cause(
    "invalid_placeholder",
    "${cmd:…} belongs into env, args, headers or bearer of a server. Write ${file:…} or ${VAR} here",
)
_ANY_SECRET: Final = "some value"
"""A value that is a secret only by its name."""
_SHORTEST_SECRET = 4  # what is shorter cannot be masked


@contextmanager
def closed_keyring() -> Iterator[None]:
    """Forbids keyring lookups, which could open a password dialog."""
    token = _is_closed.set(True)
    try:
        yield
    finally:
        _is_closed.reset(token)


def is_keyring_closed() -> bool:
    return _is_closed.get()


class Unresolved(ValueError):
    """A `${…}` without a value. The message never holds a value."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Resolved(NamedTuple):
    """A text with every `${…}` filled in. `parts`: of a text with command outputs, for which `text` has
    `COMMAND_OUTPUT`.
    """

    text: str
    secrets: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    parts: tuple[str | Lookup, ...] = ()


class Reference(NamedTuple):
    """The inside of a `${…}`."""

    text: str


def split_text(text: str) -> list[str | Reference]:
    """Unescaped literals and references, in order. Raises `Unresolved`."""
    parts: list[str | Reference] = []
    for literal, reference in _split(text):
        parts.append(literal)
        if reference is not None:
            parts.append(Reference(reference))
    return parts


def joined(parts: Iterable[str | Reference]) -> str:
    """One text, literals escaped. Raises `Unresolved` for `$` right before a reference."""
    text, literal = "", ""
    for part in parts:
        if isinstance(part, str):
            literal += part
            continue
        if literal.endswith("$"):
            raise Unresolved("invalid_placeholder", f'"$" stands right before ${{{part.text}}}')
        text, literal = f"{text}{escaped(literal)}${{{part.text}}}", ""
    return text + escaped(literal)


def escaped(literal: str) -> str:
    return literal.replace("${", "$${")


def is_variable_name(text: str) -> bool:
    """Whether `${text}` can only be a variable."""
    return _NAME.fullmatch(text) is not None


def resolve(
    text: str, env: Mapping[str, str], base: Path, *, for_clients: bool = False, refusal: Cause | None = _NOT_HERE,
    key: object = "",
) -> _Resolved:  # fmt: skip
    """Fills in a text; files are relative to `base`. Raises `Unresolved`.

    `for_clients`: client folders stay. `refusal`: why `${cmd:…}` fails; None keeps it in `parts`, not run. `key`: of
    the server that has the text.
    """
    parts: list[_Resolved] = []
    pieces: list[str | Lookup] = []
    complete, literal = "", ""
    for written, reference in _split(text):
        literal += written
        pieces.append(written)
        if for_clients and reference in OF_CLIENTS:
            complete, literal = f"{complete}{_beside_client(literal, is_before=True)}${{{reference}}}", ""
        elif reference is not None and reference.startswith(_COMMAND):
            if refusal is not None:
                raise Unresolved(*refusal)
            literal += COMMAND_OUTPUT
            pieces.append(parsed_command(reference))
        elif reference is not None and (account := account_lookup(reference)) is not None:
            _check_place(account, key, is_whole=text == f"${{{reference}}}")
            literal += COMMAND_OUTPUT
            pieces.append(account)
        elif reference is not None:
            parts.append(_look_up(reference, env, base))
            literal += parts[-1].text
            pieces.append(parts[-1].text)
    complete += _beside_client(literal, is_before=False) if for_clients else literal
    secrets = frozenset(secret for part in parts for secret in part.secrets if len(secret) >= _SHORTEST_SECRET)
    warnings = tuple(warning for part in parts for warning in part.warnings)
    if all(isinstance(piece, str) for piece in pieces):
        return _Resolved(complete, secrets, warnings)
    if for_clients and clients_in(complete):
        message = "${cmd:…} or ${account:…} and the folder of a client cannot stand in one text"
        raise Unresolved("invalid_placeholder", message)
    return _Resolved(complete, secrets, warnings, tuple(pieces))


def account_lookup(reference: str) -> AccountLookup | None:
    """The lookup of `client.principal` or `account:NAME`; None for another reference."""
    if reference.startswith(_ACCOUNT):
        return AccountLookup(reference.removeprefix(_ACCOUNT))
    return AccountLookup() if reference == _PRINCIPAL else None


def _check_place(account: AccountLookup, key: object, *, is_whole: bool) -> None:
    """Raises `Unresolved`."""
    if account.name is None:
        if key not in _OF_PRINCIPALS or not is_whole:
            message = "${client.principal} is one whole argument, variable or header of a server with account: own"
            raise Unresolved("invalid_placeholder", message)
    elif not _NAME.fullmatch(account.name):
        raise Unresolved("invalid_placeholder", "expected ${account:NAME}, with a name of letters, digits and _")
    elif key == "args":
        message = "everybody on this machine can read arguments (ps): put ${account:…} into env"
        raise Unresolved("invalid_placeholder", message)
    elif key not in _OF_ACCOUNTS:
        message = f"${{account:{account.name}}} belongs into env, headers or bearer of a server"
        raise Unresolved("invalid_placeholder", message)


def parsed_command(reference: str) -> CommandLookup:
    """Program and arguments of `cmd:PROGRAM ARG…`, split by `shlex`. Raises `Unresolved`."""
    if "${" in reference:
        message = '"${" inside "${cmd:…}" is not supported, and there is no shell. Run a script that has it'
        raise Unresolved("invalid_placeholder", message)
    try:
        argv = shlex.split(reference.removeprefix(_COMMAND))
    except ValueError as problem:
        message = f'the command of ${{cmd:…}} cannot be split: {str(problem).lower()}. It ends at the first "}}"'
        raise Unresolved("invalid_placeholder", f"{message}, also within quotes") from None
    if not argv or not argv[0] or "\0" in reference:
        raise Unresolved("invalid_placeholder", "expected ${cmd:PROGRAM ARG…}")
    return tuple(argv)


def _beside_client(literal: str, *, is_before: bool) -> str:
    return _BEFORE_CLIENT.sub(
        lambda match: match[0] if match.end() == len(literal) and not is_before else match[0] * 2, literal
    )


def clients_in(text: str) -> set[str]:
    """The client folders, `cwd` and `root`, in a filled text."""
    return {match[2] for match in _OF_CLIENT.finditer(text) if len(match[1]) % 2}


def fill_client(text: str, folder: Callable[[str], str]) -> str:
    """The text with `folder("cwd")` and `folder("root")` for its references."""

    def text_of(match: re.Match[str]) -> str:
        dollars, is_reference = divmod(len(match[1]), 2)
        return "$" * dollars + (folder(match[2]) if is_reference else f"{{client.{match[2]}}}")

    return _OF_CLIENT.sub(text_of, text) if "{client." in text else text


def _split(text: str) -> Iterator[tuple[str, str | None]]:
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            yield text[at : start - 1] + "${", None
            at = start + 2
            continue
        end = text.find("}", start)
        if end < 0:
            raise Unresolved("invalid_placeholder", '"${" is never closed. Write "$${" for a literal one')
        yield text[at:start], text[start + 2 : end]
        at = end + 1
    yield text[at:], None


def _look_up(reference: str, env: Mapping[str, str], base: Path) -> _Resolved:
    if "${" in reference:
        raise Unresolved("invalid_placeholder", '"${" inside "${…}" is not supported')
    if reference.startswith("file:"):
        read = read_text(reference.removeprefix("file:"), env, base)
        return _secret(re.sub(r"\r?\n\Z", "", read.text), *read.warnings)
    if reference.startswith("keyring:"):
        return _entry(reference.removeprefix("keyring:"))
    if reference.startswith("input:"):
        message = f"the hub does not ask for values, as VS Code does for ${{{reference}}}. Write ${{VAR}} instead."
        raise Unresolved("invalid_placeholder", message)
    if reference in OF_CLIENTS:
        raise Unresolved("invalid_placeholder", f"${{{reference}}} belongs into cwd, args or env of a server")
    name, has_default, default = reference.removeprefix("env:").partition(":-")
    if not _NAME.fullmatch(name):
        forms = "${VAR}, ${VAR:-default}, ${env:VAR}, ${file:path}, ${keyring:service/name} or ${cmd:PROGRAM ARG…}"
        raise Unresolved("invalid_placeholder", f"expected {forms}; $${{ is a literal ${{")
    if has_default and not env.get(name):
        return _Resolved(default)
    if name not in env:
        advice = f"write ${{{name}:-default}}"
        if is_secret(name, _ANY_SECRET, is_from_outside=False):  # no default helps
            advice = f"keep its value in a file of yours: ${{file:secrets/{name}}}"
        raise Unresolved("variable_not_set", f"environment variable {name} is not set. Set it, or {advice}")
    return _secret(env[name]) if is_secret(name, env[name], is_from_outside=True) else _Resolved(env[name])


def _secret(text: str, *warnings: str) -> _Resolved:
    return _Resolved(text, frozenset({text}), warnings)


def _entry(text: str) -> _Resolved:
    """May wait for the user to unlock the keyring."""
    service, slash, name = text.rpartition("/")
    if not (service and slash and name):
        raise Unresolved("invalid_placeholder", "expected ${keyring:service/name}")
    if _is_closed.get():
        raise Unresolved("keyring_unavailable", f"{service}/{name} is not looked up: the keyring could open a dialog")
    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        message = f"no keyring is installed. Install it with: {with_extra('keyring')}"
        raise Unresolved("keyring_unavailable", message) from None
    try:
        password = keyring.get_password(service, name)
    except Exception as problem:  # each system's keyring has errors of its own
        raise Unresolved("keyring_unavailable", f"the keyring cannot be read: {type(problem).__name__}") from None
    if not isinstance(password, str):
        message = f"the keyring has no {service}/{name}. Store it with: {keyring_command(service, name)}"
        raise Unresolved("keyring_unavailable", message)
    return _secret(password)


def variable_of_input(name: str) -> str:
    """`api-key` → `API_KEY`."""
    return re.sub(r"\W", "_", name.upper())


def read_text(
    text: str, env: Mapping[str, str], base: Path, decode: Callable[[bytes], str] = bytes.decode
) -> _Resolved:
    """A small file's text, with a warning if others can read it. Raises `Unresolved`."""
    path = base / expand_home(text, env)
    try:
        content, state = read_file(path, _LARGEST_FILE)
        problem = problem_of_secret(state, path)
        return _Resolved(decode(content), warnings=() if problem is None else (f"file {path} {problem}",))
    except OSError as error:
        if error.errno == errno.EINVAL and not str(path).isprintable():
            raise Unresolved("file_unreadable", f"cannot read a file: {error.strerror}") from None
        raise Unresolved("file_unreadable", f"cannot read file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Unresolved("file_unreadable", f"cannot read file {path}: not UTF-8 text") from None


def expand_home(text: str, env: Mapping[str, str]) -> Path:
    """Replaces a leading `~`. Raises `Unresolved` without a home."""
    if text != "~" and not text.startswith(("~/", "~\\")):
        return Path(text)
    home = env.get("HOME") or env.get("USERPROFILE")
    if not home:
        raise Unresolved("variable_not_set", "~ cannot be resolved: HOME is not set")
    return Path(home) / text[2:]


LEFT_OUT: Final = object()
"""Returned by an `OnFailure` to drop the value."""

OnFailure = Callable[[DataPath, str, Unresolved], object]
"""Called with path, text and problem; returns the replacement."""


class Interpolation(msgspec.Struct):
    """Fills in plain data; remembers changed paths, secrets and warnings.

    `refusal`: why no command runs; None allows them. `commands`: texts with command outputs, by server.
    """

    env: Mapping[str, str]
    base: Path
    refusal: Cause | None = NO_COMMANDS
    commands: dict[str, dict[DataPath, tuple[str | Lookup, ...]]] = msgspec.field(default_factory=dict)
    refused: bool = False
    secrets: set[str] = msgspec.field(default_factory=set)
    changed: set[DataPath] = msgspec.field(default_factory=set)
    secret_at: set[DataPath] = msgspec.field(default_factory=set)
    warnings: list[Finding] = msgspec.field(default_factory=list)

    def fill(self, tree: object, path: DataPath, on_failure: OnFailure) -> object:
        """A copy of `tree`, which stands at `path`; keys stay."""
        if isinstance(tree, dict):
            pairs = [(key, self.fill(value, (*path, key), on_failure)) for key, value in tree.items()]
            return {key: value for key, value in pairs if value is not LEFT_OUT}
        if isinstance(tree, list):
            items = [self.fill(item, (*path, index), on_failure) for index, item in enumerate(tree)]
            return [item for item in items if item is not LEFT_OUT]
        return self._text(tree, path, on_failure) if isinstance(tree, str) else tree

    def _text(self, text: str, path: DataPath, on_failure: OnFailure) -> object:
        try:
            key = path[2] if path[0] == "servers" and len(path) > 2 else ""
            refusal = self.refusal if key in _OF_COMMANDS else _NOT_HERE
            filled = resolve(text, self.env, self.base, for_clients=key in _FOR_CLIENTS, refusal=refusal, key=key)
        except Unresolved as problem:
            self.refused = self.refused or problem.code == NO_COMMANDS.code
            return on_failure(path, text, problem)
        if filled.parts:
            self.commands.setdefault(str(path[1]), {})[path[2:]] = filled.parts
            if any(part != AccountLookup() and not isinstance(part, str) for part in filled.parts):
                self.secret_at.add(path)
        if filled.text != text:
            self.changed.add(path)
        self.take(path, filled.secrets, filled.warnings)
        return filled.text

    def take(self, path: DataPath, secrets: Collection[str], warnings: Iterable[str]) -> None:
        """Remembers secrets from outside, and warnings about their source."""
        if secrets:
            self.secret_at.add(path)
        self.secrets |= set(secrets)
        self.warnings += [Finding(path, "secret_readable", warning) for warning in warnings]
