"""Starts a hub that survives its client: a grandchild in its own session and, with systemd, control group."""

import os
import sys
import time

from mcp_hub.attach.environment import hub_environment
from mcp_hub.attach.folder import LOG, write_variables
from mcp_hub.attach.join import NotJoined
from mcp_hub.attach.machine import interpreter
from mcp_hub.attach.system import NO_LINK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

READY = b"ready\n"
COMMAND = "attached-hub"
_MOST_FILES = 4096
_LONGEST = 4096


def start_hub(folder: str, config: str, names: "Collection[str]", env: "Mapping[str, str]", until: float) -> None:
    """Returns when the hub listens. Raises `NotJoined`."""
    command = [sys.executable, "-m", "mcp_hub", COMMAND, "--folder", folder, "--config", config]
    try:
        command += ["--client-folder", os.getcwd()]
    except OSError:  # it was removed
        pass
    environment = hub_environment(env, names)
    if not sys.executable:
        raise NotJoined("the interpreter of this program is not known")
    write_variables(folder, names, env)
    output = b""
    systemd = _systemd_run(env) if interpreter() == command[0] else None
    for before in ([systemd, *_SCOPED], []) if systemd else ([],):
        output = _output_of(_launched([*before, *command], environment, os.path.join(folder, LOG)), until)
        if output == READY:
            return
    why = output.decode("utf-8", "replace").strip() or "it ended"
    raise NotJoined(f"the background hub did not start: {why} (see {os.path.join(folder, LOG)})")


_SCOPED = ("--user", "--scope", "--quiet", "--collect", "--")


def _systemd_run(env: "Mapping[str, str]") -> str | None:
    runtime = env.get("XDG_RUNTIME_DIR")
    if not runtime or not os.path.exists(os.path.join(runtime, "systemd", "private")):
        return None
    places = (os.path.join(folder, "systemd-run") for folder in ("/usr/bin", "/bin"))
    return next(filter(os.path.exists, places), None)


def _launched(command: "Sequence[str]", env: "Mapping[str, str]", log: str) -> int:
    """The pipe on which the hub reports."""
    if sys.platform == "win32":
        raise NotImplementedError
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK, 0o600)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _become(command, env, write, file)
        finally:
            os._exit(0)
    os.close(write)
    os.close(file)
    os.waitpid(child, 0)
    return read


def _become(command: "Sequence[str]", env: "Mapping[str, str]", output: int, log: int) -> None:
    os.chdir("/")
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    except FileNotFoundError:  # an empty /dev
        read, write = os.pipe()
        os.close(write)
        os.dup2(read, 0)
    os.dup2(log, 2)
    os.dup2(output, 1)
    os.closerange(3, _MOST_FILES)
    os.execve(interpreter() if command[0] == sys.executable else command[0], list(command), dict(env))


def _output_of(pipe: int, until: float) -> bytes:
    """The hub's line, empty if it ended. Raises `NotJoined` after `until`."""
    if sys.platform == "win32":
        raise NotImplementedError
    import select

    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    output = b""
    try:
        while b"\n" not in output and len(output) < _LONGEST:
            remaining = until - time.monotonic()
            if remaining <= 0:
                raise NotJoined("the background hub takes long to start")
            if poll.poll(remaining * 1000):
                portion = os.read(pipe, _LONGEST)
                if not portion:
                    break
                output += portion
    finally:
        os.close(pipe)
    return output
