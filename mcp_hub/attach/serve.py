"""Serving a client by the background hub, if it is to be and can be.

Attach is never worse than no attach: whatever goes wrong, the client gets a hub in this process, with one line on
stderr that says why. Only with `always` the program ends with exit code 3 instead.
"""

import os

from mcp_hub.attach.arguments import VARIABLE, HubWanted
from mcp_hub.attach.system import NO_WAIT
from mcp_hub.attach.variables import LARGEST, named_variables, written_mode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_UNAVAILABLE = 3
_NOT_ATTACHED = "not_attached"
_REGULAR = 0o100000

_reasons: list[str] = []
"""The reason why this process has not joined a background hub: none or one."""


def reason() -> str:
    """Why this process has a hub of its own; empty for one that does not serve a client over stdio."""
    return _reasons[0] if _reasons else ""


def why_alone(config: str, env: "Mapping[str, str]") -> str:
    """Why clients with this environment each get a hub of their own; empty if they share one."""
    from mcp_hub.attach.environment import why_not

    written = env.get(VARIABLE)
    mode = written or mode_in(config) or "auto"
    if mode == "never":
        return f"${VARIABLE} is never" if written else "hub.attach is never"
    return why_not(env) or "" if mode == "auto" else ""


def mode_in(config: str) -> str | None:
    """The mode that the file writes, `auto` if it does not; None if that is not certain."""
    text = _text_of(config)
    mode = None if text is None else written_mode(text)
    return "auto" if mode == "" else mode


def _text_of(config: str) -> bytes | None:
    try:
        file = os.open(config, os.O_RDONLY | NO_WAIT)
    except OSError:
        return None
    try:
        if os.fstat(file).st_mode & 0o170000 != _REGULAR:
            return None
        text = b""
        while len(text) <= LARGEST and (portion := os.read(file, LARGEST + 1 - len(text))):
            text += portion
    except OSError:
        return None
    finally:
        os.close(file)
    return text if len(text) <= LARGEST else None


def serve_attached(request: HubWanted, mode: str, why_never: str = "") -> bool:
    """Serves the client by a background hub to its end; False if it needs a hub in this process: `reason` says why.

    Exits with 3 in place of that if `mode` is `always`. `why_never`: why the mode is `never`, unless an option, the
    variable or the file says so.
    """
    if mode == "never":
        if not _reasons:
            _reasons.append(why_never or _named_never(request))
        return False
    why = _serve(request, mode)
    if why is None:
        return True
    _reasons[:] = [why or why_alone(request.config, os.environ)]
    if mode == "always":
        warn(f"{why} [{_NOT_ATTACHED}]")
        raise SystemExit(_UNAVAILABLE)
    if why:
        warn(f"{why}. This client gets a hub of its own.")
    return False


def _named_never(request: HubWanted) -> str:
    if any(argument.partition("=")[0] == "--attach" for argument in request.arguments):
        return "--attach is never"
    return f"${VARIABLE} is never" if os.environ.get(VARIABLE) == "never" else "hub.attach is never"


def started_folder(config: str, mode: str) -> str:
    """The folder of the background hub of the configuration at this absolute path, which is started if need be.

    A person wants it, so `auto` starts one in a container, too, where clients do not. Raises `NotJoined`.
    """
    from mcp_hub.attach.folder import Untrusted, hub_folder
    from mcp_hub.attach.join import NotJoined, ensure
    from mcp_hub.attach.start import start_hub

    why = "hub.attach or $MCP_HUB_ATTACH is never" if mode == "never" else None
    text = _text_of(config)
    names = None if text is None else named_variables(text, os.environ)
    if why is None and names is None:
        why = f"the variables that {config} needs are not certain"
    if why is not None or names is None:
        raise NotJoined(why)
    needed = sorted(names)
    try:
        folder = hub_folder(config, needed, os.environ)
    except (Untrusted, OSError) as problem:
        raise NotJoined(str(problem)) from None
    ensure(folder, lambda until: start_hub(folder, config, needed, os.environ, until))
    return folder


def warn(text: str) -> None:
    """A line on stderr, which may be closed; what a terminal would obey is spelled out."""
    plain = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    try:
        os.write(2, f"mcp-hub: {plain}\n".encode("utf-8", "replace"))
    except OSError:
        pass


def _serve(request: HubWanted, mode: str) -> str | None:
    """Serves the client to its end; else the reason why not, empty where that is as it should be."""
    from mcp_hub.attach.environment import why_not

    if mode == "auto" and why_not(os.environ) is not None:
        return ""
    text = _text_of(request.config)
    names = None if text is None else named_variables(text, os.environ)
    if names is None:
        return f"the variables that {request.config} needs are not certain"
    try:
        from mcp_hub.attach.client import attach
    except ImportError as problem:  # a Python without one of the modules that this takes
        return f"background hubs are not available: {problem}"
    return attach(request, sorted(names), os.environ, warn, mode)
