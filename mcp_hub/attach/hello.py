"""The first message of each side on a hub's socket: fields `name=value`, each ended by NUL, then another NUL.

The hub's `status` is `ok` (the shim hands over two pipes for lines), `retire` (it ends for a newer build), `busy` (too
many clients, or, with `build`, older and in use) or `refused`. Builds are ordered, the protocol has versions.

The hub's control lines: `#stream ID STREAM` names the durable stream of request `ID`, `#stopping` announces the end.
"""

from mcp_hub import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


OLDEST, NEWEST = 1, 1
"""The versions of the attach protocol that this build speaks; another major version is another scope."""
MAJOR = 1
BUILD = __version__
MARK = b"mcp-hub attach\0"
LARGEST = 1 << 16
CONTROL = b"#"
STREAM = b"#stream "
STOPPING = b"#stopping\n"


def order(build: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key: numbers by value, a pre-release before its release."""
    parts: list[tuple[int, int, str]] = []
    for part in build.replace("-", ".").replace("+", ".").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        suffix = part[len(digits) :]
        parts.append((1, int(digits), "") if digits else (0, 0, suffix))
        if digits and suffix:
            parts.append((0, 0, suffix))
    return (*parts, (0, 1, ""))


def is_newer(build: str, than: str) -> bool:
    return order(build) > order(than)


def encoded(fields: "Mapping[str, str]") -> bytes:
    """The message, without the NULs of values."""
    lines = (f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in fields.items())
    return MARK + b"".join(line.replace(b"\0", b"") + b"\0" for line in lines) + b"\0"


def is_whole(data: bytes) -> bool:
    """Whether the message is complete. Raises `ValueError` if malformed or too long."""
    if len(data) > LARGEST or data[: len(MARK)] != MARK[: len(data)]:
        raise ValueError("this is not a hello")
    return data.find(b"\0\0", len(MARK) - 1) >= 0


def decoded(data: bytes) -> tuple[dict[str, str], bytes]:
    """The fields of a complete message, and the bytes behind it."""
    body, _, tail = data[len(MARK) - 1 :].partition(b"\0\0")
    lines = body.decode("utf-8", "surrogateescape").split("\0")
    return {name: value for line in lines if line for name, _, value in [line.partition("=")]}, tail
