"""The first message of each side on a hub's socket: fields `name=value`, a NUL behind each and one more at the end.

The shim says its build, the range of protocol versions, working directory and arguments; the hub answers with its
`status`: `ok`, `retire` (it ends in favour of a newer build), `busy` with `why` (it has too many clients, or, with its
`build`, it is older and in use), or `refused` with `why`.
After `ok` the shim hands over two pipes (`pipes`), on which both sides send lines: those of MCP, and from the hub to
the shim *control lines*, which begin with `#` and stay between them: `#stream ID STREAM` (the request `ID` runs as this
durable stream) and `#stopping`.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MARK = b"mcp-hub attach\0"
LARGEST = 1 << 16
CONTROL = b"#"
STREAM = b"#stream "
STOPPING = b"#stopping\n"


def encoded(fields: "Mapping[str, str]") -> bytes:
    """The message; values may hold anything but NUL."""
    lines = (f"{name}={value}".encode("utf-8", "surrogateescape") for name, value in fields.items())
    return MARK + b"".join(line.replace(b"\0", b"") + b"\0" for line in lines) + b"\0"


def is_whole(data: bytes) -> bool:
    """Whether all of the message has come. Raises `ValueError` for one that is not a hello, or too long."""
    if len(data) > LARGEST or data[: len(MARK)] != MARK[: len(data)]:
        raise ValueError("this is not a hello")
    return data.find(b"\0\0", len(MARK) - 1) >= 0


def decoded(data: bytes) -> tuple[dict[str, str], bytes]:
    """The fields of a whole message, and what came behind it."""
    body, _, tail = data[len(MARK) - 1 :].partition(b"\0\0")
    lines = body.decode("utf-8", "surrogateescape").split("\0")
    return {name: value for line in lines if line for name, _, value in [line.partition("=")]}, tail
