"""The confining program: limits its own process by a plan, then executes the server's command.

It uses only the standard library. An inherited socket brings code and plan, takes the seccomp listener, and closes by
the exec; a failed step is reported there (name, errno, text). Landlock comes before seccomp, which forbids its calls.
Paths are resolved already: a link in one is an error.
"""

import _ctypes  # a third of a millisecond; ctypes takes three
import _signal  # type: ignore[import-not-found]  # signal itself loads enum
import _socket
import marshal
import posix  # os takes a millisecond
import sys

assert sys.platform == "linux"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Plan(TypedDict):
        """Command, environment, Landlock's rules and the filter."""

        argv: list[bytes]
        env: dict[bytes, bytes]
        rules: list[tuple[bytes, int, bool]]
        handled: tuple[int, int, int]
        seccomp: int
        filter: bytes
        has_listener: bool


MOST = 1 << 17
"""Bytes of a plan."""
ENDED = 126
"""Exit code after a failed step."""
_CLOSE_RANGE, _OPENAT2 = 436, 437
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls, equal on all architectures."""
_PATH_BENEATH = 1
_NO_MAGICLINKS, _NO_SYMLINKS = 2, 4
_CAP_VERSION = 0x20080522
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 24, 28, 38, 47, 4
_NO_ROOT = 0x2F
"""Secure bits: an exec by uid 0 gains nothing."""
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
_ONLY_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""Landlock's rights for files."""
_EINVAL, _ENOENT, _EACCES = 22, 2, 13
_RLIMIT_CORE = 4

_step = "plan"


class _Char(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "c"


class _Word(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "I"


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Capabilities(_ctypes.Array):  # type: ignore[type-arg]
    """`struct __user_cap_data_struct[2]`."""

    _type_ = _Word
    _length_ = 6


class _Function(_ctypes.CFuncPtr):
    """A C function that keeps `errno`."""

    _flags_ = 1 | 8
    _restype_ = _Long


_library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # NULL: this program itself
_call, _prctl, _capget, _capset, _setrlimit = (
    _Function(_ctypes.dlsym(_library, name)) for name in ("syscall", "prctl", "capget", "capset", "setrlimit")
)


def _checked(answer: int, detail: str = "") -> int:
    if answer < 0:
        number = _ctypes.get_errno()
        raise OSError(number, posix.strerror(number), detail)
    return answer


def _syscall(number: int, *arguments: "int | bytes") -> int:
    longs = [_Long(argument) if isinstance(argument, int) else argument for argument in arguments]
    answer: int = _call(_Long(number), *longs)
    return answer


def _words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, sys.byteorder) for value in values)


def _close_others(channel: int) -> None:
    if channel > 3:
        _checked(_syscall(_CLOSE_RANGE, 3, channel - 1, 0))
    _checked(_syscall(_CLOSE_RANGE, channel + 1, 0xFFFFFFFF, 0))


def _drop_capabilities() -> None:
    """Drops all capabilities, also those that an exec would restore."""
    header, capabilities = _words(_CAP_VERSION), _Capabilities()
    _checked(_capget(header, capabilities))
    if not any(capabilities):
        return
    zeros = [_Long(0)] * 3
    _prctl(_PR_CAP_AMBIENT, _Long(_CLEAR_ALL), *zeros)  # needs no capability; absent before Linux 4.3
    number = 0
    while _prctl(_PR_CAPBSET_DROP, _Long(number), *zeros) == 0:  # without CAP_SETPCAP no_new_privs makes it useless
        number += 1
    _prctl(_PR_SET_SECUREBITS, _Long(_NO_ROOT), *zeros)
    _checked(_capset(header, _Capabilities()))
    _checked(_capget(header, capabilities))
    if any(capabilities):
        raise OSError(0, "capabilities are left")


def _opened(rules: "list[tuple[bytes, int, bool]]") -> "list[tuple[int, int]]":
    options = _words(posix.O_PATH | posix.O_CLOEXEC, 0, _NO_SYMLINKS | _NO_MAGICLINKS)
    number, base, size = _Long(_OPENAT2), _Long(-100), _Long(len(options))
    opened = []
    for path, access, is_needed in rules:
        descriptor = _call(number, base, path, options, size)
        if descriptor < 0:
            if _ctypes.get_errno() in (_ENOENT, _EACCES) and not is_needed:
                continue
            _checked(descriptor, path.decode("utf-8", "surrogateescape"))
        is_folder = posix.fstat(descriptor).st_mode & 0o170000 == 0o040000
        opened.append((descriptor, access if is_folder else access & _ONLY_FILES))
    return opened


def _restrict(handled: "tuple[int, int, int]", opened: "list[tuple[int, int]]") -> None:
    size = 24 if handled[2] else 16 if handled[1] else 8
    ruleset = _checked(_syscall(_CREATE_RULESET, _words(*handled), size, 0))
    for descriptor, access in opened:
        beneath = _words(access & handled[0]) + descriptor.to_bytes(4, sys.byteorder)
        _checked(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, beneath, 0))
        posix.close(descriptor)
    _checked(_syscall(_RESTRICT_SELF, ruleset, 0))
    posix.close(ruleset)


def _install(number: int, code: bytes, has_listener: bool) -> int:
    """Installs the filter; returns its listener or 0."""

    class Code(_ctypes.Array):  # type: ignore[type-arg]
        _type_ = _Char
        _length_ = len(code)

    memory = Code.from_buffer_copy(code)
    program = _words(len(code) // 8, _ctypes.addressof(memory))
    if not has_listener:
        return _checked(_syscall(number, _SET_MODE_FILTER, 0, program))
    listener = _syscall(number, _SET_MODE_FILTER, _NEW_LISTENER | _WAIT_KILLABLE, program)
    if listener < 0 and _ctypes.get_errno() == _EINVAL:  # before Linux 5.19
        listener = _syscall(number, _SET_MODE_FILTER, _NEW_LISTENER, program)
    return _checked(listener)


def _enter(step: str) -> None:
    global _step
    _step = step


def _confine(plan: "Plan", channel: _socket.socket) -> None:
    _enter("descriptors")
    _close_others(channel.fileno())
    _enter("core")
    _checked(_setrlimit(_RLIMIT_CORE, _words(0, 0)))
    _enter("capabilities")
    _drop_capabilities()
    _enter("path")
    opened = _opened(plan["rules"])
    _enter("privileges")
    _checked(_prctl(_PR_SET_NO_NEW_PRIVS, _Long(1), *[_Long(0)] * 3))
    _enter("landlock")
    _restrict(plan["handled"], opened)
    _enter("seccomp")
    listener = _install(plan["seccomp"], plan["filter"], plan["has_listener"])
    if listener:
        _enter("listener")
        channel.sendmsg([b"n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        posix.close(listener)
        channel.recv(1)  # the hub answers when it listens: from here on a call may wait for it


def main() -> None:
    """Executes the command, or reports a failed step."""
    channel = _socket.socket(fileno=int(sys.argv[1]))
    posix.set_inheritable(channel.fileno(), False)
    try:
        plan = marshal.loads(channel.recv(MOST))
        _confine(plan, channel)
        _enter("exec")
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # the interpreter ignores them, which an exec would keep
            _signal.signal(number, _signal.SIG_DFL)
        marks = {name: value for name, value in posix.environ.items() if name.startswith(b"MCP_HUB_")}
        posix.execve(plan["argv"][0], plan["argv"], {**plan["env"], **marks})
    except BaseException as problem:
        number = getattr(problem, "errno", None) or 0
        text = str(getattr(problem, "filename", None) or "") if number else f"{type(problem).__name__}: {problem}"
        channel.send(b"e" + marshal.dumps((_step, number, text[:1000])))
    posix._exit(ENDED)


if __name__ == "__main__":
    main()
