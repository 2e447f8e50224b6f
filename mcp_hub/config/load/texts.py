"""Text files that people and documents name, read with bounds; every fault is a `ConfigError` with its line."""

from os import stat_result
from pathlib import Path
from typing import Final, NamedTuple

from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import FileTooLarge, read_file

BYTE_ORDER_MARK: Final = "\ufeff"
NOT_UTF8: Final = "the text is not UTF-8. Save the file as UTF-8."
UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class TextFile(NamedTuple):
    """The text of a file, and the state of the file when it was read."""

    text: str
    stat: stat_result


def read_text_file(path: Path, largest: int, *, create: str = "") -> TextFile:
    """A file of UTF-8 text of at most `largest` bytes, or of UTF-16 with a byte order mark; without that mark.

    `create` says how to make a file that does not exist. Raises `ConfigError`.
    """
    data, state = read_bytes(path, largest, create=create)
    return TextFile(decoded(data, str(path)), state)


def text_of(content: bytes) -> str:
    """UTF-8, or UTF-16 with a byte order mark, as Windows writes it; without that mark. Raises `UnicodeDecodeError`."""
    return content.decode("utf-16" if content.startswith(UTF16_MARKS) else "utf-8-sig")


def read_bytes(path: Path, largest: int, *, create: str = "") -> tuple[bytes, stat_result]:
    """The bytes of such a file. Raises `ConfigError`."""
    try:
        return read_file(path, largest)
    except FileTooLarge:
        raise ConfigError(ConfigFinding("config_too_large", f"larger than {largest} bytes", str(path))) from None
    except OSError as problem:
        if create and isinstance(problem, FileNotFoundError):
            raise ConfigError(
                ConfigFinding("config_not_found", f"the file does not exist. {create}", str(path))
            ) from None
        said = f"cannot be read: {problem.strerror or problem}"
        raise ConfigError(ConfigFinding("config_unreadable", said, str(path))) from None


def decoded(content: bytes, name: str) -> str:
    """The text of a file of that name. Raises `ConfigError` with the line of the first byte that is not text."""
    try:
        return text_of(content)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(ConfigFinding("invalid_text", NOT_UTF8, name, line)) from None
