"""macOS: a profile for `sandbox-exec`; later rules win. Only its text is tested. Hosts cannot be limited."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mcp_hub.sandbox.confinement import WRITE_FILE, Confinement

PROGRAM: Final = "/usr/bin/sandbox-exec"
_SERVICES: Final = (
    *("com.apple.system.logger", "com.apple.logd", "com.apple.system.notification_center", "com.apple.trustd.agent"),
    *(
        "com.apple.system.opendirectoryd.libinfo",
        "com.apple.system.opendirectoryd.membership",
        "com.apple.cfprefsd.agent",
    ),
    "com.apple.bsd.dirhelper",
)
"""Mach services for the C library and TLS, without the keychain."""
_NAMES: Final = "/private/var/run/mDNSResponder"
"""The resolver's socket."""
_SECRETS: Final = ("/Library/Keychains", "/private/etc/master.passwd", "/private/etc/sudoers", "/private/etc/ssh")


class SeatbeltLaunch:
    """One start on macOS."""

    descriptors: Sequence[int] = ()

    def __init__(self, confinement: Confinement, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.argv = [PROGRAM, "-p", profile(confinement), *argv]
        self.env = dict(env)

    def __enter__(self) -> "SeatbeltLaunch":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""

    async def executed(self, serve: Callable[[int], None]) -> None:
        """Returns at once: a bad profile ends the process with a line on stderr."""


def profile(confinement: Confinement) -> str:
    """A profile's text."""
    readable = [grant.path for grant in confinement.grants]
    writable = [grant.path for grant in confinement.grants if grant.access & WRITE_FILE]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-info* (target same-sandbox))",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow ipc-posix-sem)",
        "(allow file-read-metadata)",
        "(allow pseudo-tty)",
        f"(allow mach-lookup {' '.join(f'(global-name {_quoted(name)})' for name in _SERVICES)})",
        f"(allow file-read* process-exec file-map-executable {_subpaths(readable)})",
        f"(allow file-write* {_subpaths(writable)})",
        f"(deny file-read* file-write* {_subpaths(_SECRETS)})",
    ]
    if confinement.net == "any":
        lines += [
            '(allow network-outbound (remote ip "*:*"))',
            '(allow network-bind network-inbound (local ip "*:*"))',
            f"(allow network-outbound (literal {_quoted(_NAMES)}))",
        ]
    lines += [f"(allow network-outbound (literal {_quoted(path)}))" for path in confinement.sockets]
    return "\n".join(lines) + "\n"


def _subpaths(paths: Iterable[str]) -> str:
    return " ".join(f"(subpath {_quoted(path)})" for path in paths)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
