"""The content that a generator yields: the tool's result if it yields no `Result`."""

import tempfile
from contextlib import suppress
from typing import IO, Final

import msgspec

from mcp_hub import events
from mcp_hub.protocol.jsonrpc.envelope import one_line
from mcp_hub.upstreams.functions.schemas import plain

_IN_MEMORY: Final = 1 << 20
"""Characters of a text in memory; earlier ones are in a temporary file."""


class OutputText:
    """The content blocks so far. Consecutive texts join into one block."""

    def __init__(self) -> None:
        self._blocks: list[object] = []
        self._text: _GrowingText | None = None
        """The last block, while it is text that may still grow."""

    def add(self, item: object) -> events.Delta:
        """Adds text or a block, and returns its delta."""
        block = content_block(item)
        if not isinstance(item, str):
            self._text = None
            self._blocks.append(block)
        else:
            if self._text is None:
                self._text = _GrowingText()
                self._blocks.append(self._text)
            self._text.add(item)
        return events.Delta(msgspec.json.encode([block]), index=len(self._blocks) - 1)

    def blocks(self) -> list[object]:
        return [content_block(block.text()) if isinstance(block, _GrowingText) else block for block in self._blocks]

    def close(self) -> None:
        """Closes temporary files. Idempotent."""
        for block in self._blocks:
            if isinstance(block, _GrowingText):
                block.close()


class _GrowingText:
    """Text in pieces; all but its end goes to a temporary file if possible."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._stored = 0  # bytes of whole pieces in the file

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _IN_MEMORY:
            self._size = 0
            with suppress(OSError):  # a full disk: it stays in memory
                self._store("".join(self._pieces).encode("utf-8", "surrogatepass"))

    def _store(self, content: bytes) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile()
        self._file.seek(self._stored)
        self._file.write(content)
        self._file.flush()
        self._stored += len(content)
        self._pieces.clear()

    def text(self) -> str:
        if self._file is None:
            return "".join(self._pieces)
        self._file.seek(0)
        return self._file.read(self._stored).decode("utf-8", "surrogatepass") + "".join(self._pieces)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _Block(msgspec.Struct):
    type: str


def checked_step(step: events.ToolCall | events.ToolResult) -> events.ToolCall | events.ToolResult:
    """The step, with its JSON on one line. Raises `TypeError` for wrong types or invalid JSON."""
    try:
        match step:
            case events.ToolCall(str(), str(), bytes() | msgspec.Raw() as raw):
                msgspec.json.decode(raw, type=dict[str, object])
                return msgspec.structs.replace(step, arguments=one_line(bytes(raw)))
            case events.ToolResult(str(), bytes() | msgspec.Raw() as raw, bool()):
                msgspec.convert(msgspec.json.decode(raw), list[_Block])
                return msgspec.structs.replace(step, content=one_line(bytes(raw)))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    name, member = type(step).__name__, "arguments" if isinstance(step, events.ToolCall) else "content"
    raise TypeError(f"the {member} of a {name} are not what they have to be as JSON: {name}.of(…) encodes them")


def content_block(item: object) -> object:
    """A content block from text or a block-like value. Raises `TypeError`."""
    if isinstance(item, str):
        return {"type": "text", "text": item}
    block = plain(item)
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise TypeError(f"expected text or a content block with a type, not {type(item).__name__}")
    return block
