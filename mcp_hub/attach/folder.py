"""The folder of one background hub, and checks that only its user writes there.

`<base>/<scope>/` (0700) has `lock` (held while the hub lives), `start` (held while one starts), `hub.sock` and
`http.sock` (0600), `hub.json`, `variables` (keyed hashes) and `hub.log`.
"""

import os
import stat
import sys

from mcp_hub.attach.arguments import state_folder
from mcp_hub.attach.environment import runtime_folder, scope_values
from mcp_hub.attach.hello import BUILD, MAJOR
from mcp_hub.attach.system import BYTES, NO_LINK, NO_WAIT, lock, user

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Collection, Mapping, Sequence

SOCKET, HTTP_SOCKET, LOCK, START, RECORD, LOG = "hub.sock", "http.sock", "lock", "start", "hub.json", "hub.log"
_VARIABLES = "variables"
_RUNTIME = "XDG_RUNTIME_DIR"
_LONGEST_VARIABLES = 1 << 16
_LONGEST = 103
"""Bytes of a socket's path: macOS has 104 with the NUL behind it."""
_SCOPE = 16
_KEY = "key"
_KEY_SIZE = 32
SHORT = "/tmp"
"""The parent of the folder if all other paths are too long."""


class Untrusted(Exception):
    """A folder, socket or peer may be another user's, or cannot be made."""


def hub_folder(config: str, names: "Collection[str]", env: "Mapping[str, str]") -> str:
    """Makes the private folder for hubs of these values. Raises `Untrusted`."""
    problems: list[str] = []
    for base in _bases(env):
        if not _fits(base):
            problems.append(f"{base} is too long for a socket's path")
            continue
        try:
            make_private(base)
            folder = os.path.join(base, scope_of(config, names, env, _key(os.path.join(base, _KEY))))
            make_private(folder)
        except (OSError, Untrusted) as problem:
            problems.append(str(problem))
            continue
        return folder
    raise Untrusted("; ".join(problems))


def successor_folder(folder: str, config: str, names: "Collection[str]", env: "Mapping[str, str]") -> str:
    """The folder of this build beside a busy older hub; it need not exist. Raises `OSError`, `Untrusted`."""
    base = os.path.dirname(folder)
    return os.path.join(base, scope_of(config, names, env, _key(os.path.join(base, _KEY)), BUILD))


def base_folders(env: "Mapping[str, str]") -> list[str]:
    return [base for base in _bases(env) if _fits(base)]


def _bases(env: "Mapping[str, str]") -> list[str]:
    if user() is None:
        return []
    runtime, state = runtime_folder(env) or "", state_folder(env)
    bases = [os.path.join(state, "attach"), os.path.join(SHORT, f"mcp-hub-{user()}")]
    if os.path.isabs(runtime) and problem_of(runtime) is None:
        bases.insert(0, os.path.join(runtime, "mcp-hub"))
    return bases


def _fits(base: str) -> bool:
    return len(os.fsencode(os.path.join(base, "x" * _SCOPE, HTTP_SOCKET))) <= _LONGEST


def is_alive(folder: str) -> bool:
    """Whether a hub holds the lock. Raises `OSError`."""
    file = _locked(folder, LOCK, shared=True)
    if file is None:
        return True
    os.close(file)
    return False


def take_start(folder: str) -> int | None:
    """The start-up lock, to be closed; None if another process holds it. Raises `OSError`."""
    return _locked(folder, START, shared=False)


def _locked(folder: str, name: str, *, shared: bool) -> int | None:
    file = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    if lock(file, shared=shared):
        return file
    os.close(file)
    return None


def scope_of(config: str, names: "Collection[str]", env: "Mapping[str, str]", key: bytes, build: str = "") -> str:
    """A keyed hash that tells hubs apart. `build` is set beside an older hub."""
    values = scope_values(env, names)
    parts = [f"{MAJOR} {build}" if build else str(MAJOR), str(user()), config]
    parts += [f"{name}={values[name]}" if name in values else name for name in sorted({*values, *names})]
    return _digest(parts, key)


def _digest(parts: "Sequence[str]", key: bytes) -> str:
    from _blake2 import blake2b  # hashlib would load OpenSSL, which takes longer than all else

    text = b"".join(b"%d:%b" % (len(part), part) for part in map(os.fsencode, parts))
    digest: str = blake2b(text, digest_size=_SCOPE // 2, key=key).hexdigest()
    return digest


def write_variables(folder: str, names: "Collection[str]", env: "Mapping[str, str]") -> None:
    """Writes keyed hashes of the scope's variables. Raises `OSError`, `Untrusted`."""
    key, path = _key(os.path.join(os.path.dirname(folder), _KEY)), os.path.join(folder, _VARIABLES)
    lines = [f"{name}={_digest([value], key)}\n" for name, value in sorted(scope_values(env, names).items())]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o600)
    try:
        os.write(file, "".join(lines).encode()[:_LONGEST_VARIABLES])
    finally:
        os.close(file)


def variables_of(folder: str, env: "Mapping[str, str]") -> dict[str, bool]:
    """The scope's variables and whether each has the same value here; {} if unreadable."""
    try:
        key, there = _key(os.path.join(os.path.dirname(folder), _KEY)), _read_variables(folder)
    except (OSError, Untrusted, ValueError):
        return {}
    digests = {name: _digest([value], key) for name, value in scope_values(env, there).items()}
    return {name: there.get(name) == digests.get(name) for name in sorted({*there, *digests})}


def different_variables(folder: str, other_folder: str) -> list[str]:
    """The variables that differ between two hubs; another base counts as `XDG_RUNTIME_DIR`."""
    if os.path.dirname(folder) != os.path.dirname(other_folder):
        return [_RUNTIME]
    try:
        values, other_values = _read_variables(folder), _read_variables(other_folder)
    except (OSError, ValueError):
        return []
    return sorted(name for name in {*values, *other_values} if values.get(name) != other_values.get(name))


def _read_variables(folder: str) -> dict[str, str]:
    file = os.open(os.path.join(folder, _VARIABLES), os.O_RDONLY | NO_LINK | NO_WAIT)
    try:
        text = os.read(file, _LONGEST_VARIABLES).decode()
    finally:
        os.close(file)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def _key(path: str) -> bytes:
    """This user's secret for hashes."""
    for _ in range(2):
        try:
            file = os.open(path, os.O_RDONLY | NO_LINK)
        except FileNotFoundError:
            _write_key(path)
            continue
        try:
            status = os.fstat(file)
            key = os.read(file, _KEY_SIZE + 1)
        finally:
            os.close(file)
        if status.st_uid != user() or status.st_mode & 0o077 or len(key) != _KEY_SIZE:
            raise Untrusted(f"{path} is not a key of this user. Remove it")
        return key
    raise Untrusted(f"{path} cannot be made")


def _write_key(path: str) -> None:
    """Atomic; an existing key stays."""
    draft = f"{path}.{os.getpid()}"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BYTES, 0o600)
    try:
        os.write(file, os.urandom(_KEY_SIZE))
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.close(file)
        os.unlink(draft)


def make_folder(path: "str | os.PathLike[str]") -> None:
    """Makes missing parents, too, with mode 0700. Raises `OSError`.

    `os.makedirs` would apply the mode to the last one only.
    """
    folder = os.fspath(path)
    missing = []
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            if not os.path.isdir(folder):  # unless another process was quicker
                raise


def make_private(path: str) -> None:
    """Makes a folder that only this user can read. Raises `OSError`, `Untrusted`."""
    parent = os.path.dirname(path)
    make_folder(path)
    if (problem := problem_of(path)) is not None:
        raise Untrusted(problem)
    if (problem := _problem_of_parent(parent)) is not None:
        raise Untrusted(problem)


def problem_of(path: str) -> str | None:
    """The reason why a folder is not private."""
    try:
        status = os.lstat(path)
    except OSError as problem:
        return f"{path}: {problem.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{path} is not a folder"
    return _problem(path, status)


def _problem(path: str, status: os.stat_result) -> str | None:
    if status.st_uid != user():
        return f"{path} belongs to another user ({status.st_uid})"
    if status.st_mode & 0o077:
        return f"others may use {path} (mode {stat.S_IMODE(status.st_mode):o}). Run chmod go= {path}"
    return None


def _problem_of_parent(path: str) -> str | None:
    status = os.stat(path)
    if status.st_uid not in (user(), 0):
        return f"{path} belongs to another user ({status.st_uid})"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return f"others may write {path} (mode {stat.S_IMODE(status.st_mode):o}). Run chmod go-w {path}"
    return None


def check_socket(path: str) -> None:
    """Raises `Untrusted` unless the socket is this user's alone, `OSError` without one."""
    status = os.lstat(path)
    if not stat.S_ISSOCK(status.st_mode):
        raise Untrusted(f"{path} is not a socket")
    if (problem := _problem(path, status)) is not None:
        raise Untrusted(problem)


def check_peer(connection: "_socket.socket") -> None:
    """Raises `Untrusted` for another user."""
    uid = peer_uid(connection)
    if uid != user():
        raise Untrusted(f"the other end of the socket belongs to another user ({uid})")


def peer_uid(connection: "_socket.socket") -> int:
    """The user id of the peer. Raises `OSError`."""
    import _socket

    # `struct ucred` of Linux begins with pid and uid, `struct xucred` of macOS (LOCAL_PEERCRED) with version and uid
    level, option = (_socket.SOL_SOCKET, getattr(_socket, "SO_PEERCRED", 0)) if sys.platform == "linux" else (0, 1)
    raw = connection.getsockopt(level, option, 76 if level == 0 else 12)
    return int.from_bytes(raw[4:8], sys.byteorder)
