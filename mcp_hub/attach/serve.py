"""Serves a client by the background hub, else by a hub in this process."""

import os

from mcp_hub.attach.arguments import VARIABLE, HubWanted
from mcp_hub.attach.environment import CI, CONTAINER, LARGEST, named_variables, why_not, written_mode
from mcp_hub.attach.system import NO_WAIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_UNAVAILABLE = 3
_NOT_ATTACHED = "not_attached"
_REGULAR = 0o100000

_reasons: list[str] = []
"""The reason why this process has not joined a background hub: none or one."""


def reason() -> str:
    return _reasons[0] if _reasons else ""


def why_alone(config: str, env: "Mapping[str, str]") -> str:
    """Why clients of this environment do not share a hub; empty if they do."""
    written = env.get(VARIABLE)
    mode = written or mode_in(config) or "auto"
    if mode == "never":
        return f"${VARIABLE} is never" if written else "hub.attach is never"
    return why_not(env) or "" if mode == "auto" else ""


def how_to_share(why: str) -> str:
    """The setting by which clients share a hub in spite of `why_alone`, if one does."""
    return "; hub: {attach: always} has them share one" if why in (CI, CONTAINER) else ""


def mode_in(config: str) -> str | None:
    """The file's `hub.attach`, `auto` without one; None if uncertain."""
    text = _text_of(config)
    mode = None if text is None else written_mode(text)
    return "auto" if mode == "" else mode


def leaves_out(config: str, key: bytes) -> bool:
    """Whether the file certainly lacks this key; no `key` has a character that needs an escape."""
    text = _text_of(config)
    return text is not None and not any(part in text for part in (key, b"\\", b"\0"))


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
    """Serves the client by a background hub to its end; False with the `reason` if it needs another hub.

    Exits with 3 instead if `mode` is `always`.
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
    """The folder of the background hub, started if needed, in containers, too. `config` is absolute. Raises
    `NotJoined`.
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
        raise NotJoined(why or "")
    needed = sorted(names)
    try:
        folder = hub_folder(config, needed, os.environ)
    except (Untrusted, OSError) as problem:
        raise NotJoined(str(problem)) from None
    ensure(folder, lambda until: start_hub(folder, config, needed, os.environ, until))
    return folder


def warn(text: str) -> None:
    """Writes a line to stderr with control characters escaped."""
    plain = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    try:
        os.write(2, f"mcp-hub: {plain}\n".encode("utf-8", "replace"))
    except OSError:
        pass


def _serve(request: HubWanted, mode: str) -> str | None:
    """Returns why not; empty if that is expected."""
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
