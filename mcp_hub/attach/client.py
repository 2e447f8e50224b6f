"""One client's way to a hub: join it, start it, or run its own."""

import os
import sys

from mcp_hub.attach.arguments import HubWanted
from mcp_hub.attach.folder import Untrusted, hub_folder, is_alive, make_private, problem_of, successor_folder
from mcp_hub.attach.join import HubPipes, NotJoined, join, piped
from mcp_hub.attach.machine import interpreter
from mcp_hub.attach.shim import Shim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LONGEST_PATH = 1 << 14
"""Characters of a search path in a hello."""
_INTERRUPTED = 130
_LOST = 1


def attach(
    request: HubWanted, names: "Sequence[str]", env: "Mapping[str, str]", warn: "Callable[[str], None]", mode: str
) -> str | None:
    """Serves the client to its end; returns why no hub could be joined.

    Raises `SystemExit` if hubs keep dying with `mode` `always`.
    """

    try:
        joined = _joining(request, names, env)
        first = joined("")
    except (Untrusted, NotJoined, OSError) as problem:
        return str(problem)
    import _signal  # type: ignore[import-not-found]  # `signal` loads `enum`; there are no stubs of this one

    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)  # mcp-hub reload is for the hub; a closed terminal ends stdin
    if os.isatty(0):
        warn("speaks MCP on stdin and stdout now. End it with Ctrl-D. To serve HTTP: mcp-hub serve --http")
    try:
        Shim(first, joined, None if mode == "always" else lambda: _own_hub(request), warn).run()
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except BrokenPipeError:
        os._exit(0)  # the client is gone
    except OSError as problem:
        warn(f"the connection to the client is lost: {problem.strerror}")
        raise SystemExit(_LOST) from None
    return None


def _joining(request: HubWanted, names: "Sequence[str]", env: "Mapping[str, str]") -> "Callable[[str], HubPipes]":
    """A function that joins or starts the hub; beside a busy older one, its successor."""
    folder = hub_folder(request.config, names, env)
    newer = successor_folder(folder, request.config, names, env)

    def starting(folder: str) -> "Callable[[float], None]":
        def start(until: float) -> None:
            from mcp_hub.attach.start import start_hub  # when no hub runs

            start_hub(folder, request.config, names, env, until)

        return start

    def joined(streams: str) -> HubPipes:
        hello = {**_hello(request), "streams": streams}
        try:
            if not _is_served(newer):
                return join(folder, hello, starting(folder))
        except NotJoined as problem:
            if not problem.is_older:
                raise
        try:
            make_private(newer)
            return join(newer, hello, starting(newer))
        except (OSError, Untrusted) as problem:
            raise NotJoined(str(problem)) from None

    return joined


def _is_served(folder: str) -> bool:
    try:
        return os.path.isdir(folder) and problem_of(folder) is None and is_alive(folder)
    except OSError:
        return False


def _hello(request: HubWanted) -> dict[str, str]:
    path = os.environ.get("PATH", "")
    hello = {"profile": request.profile, "client": request.client, "cwd": _directory(), "path": path[:_LONGEST_PATH]}
    return {name: value for name, value in hello.items() if value is not None}


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def _own_hub(request: HubWanted) -> HubPipes:
    """Starts a hub as a child process."""
    if sys.platform == "win32":
        raise NotImplementedError
    ours, theirs = piped()
    if os.fork() == 0:
        try:
            for file, our_end in enumerate(theirs):
                os.dup2(our_end, file)
            command = [sys.executable, "-m", "mcp_hub", *request.arguments, "--attach", "never"]
            os.execv(interpreter(), command)
        finally:
            os._exit(127)
    for our_end in theirs:
        os.close(our_end)
    return ours
