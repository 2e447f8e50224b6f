"""The fixture server's line of bytes: JSON text out (verbatim where asked), one journal line per message in."""

import json
import os
import sys
import threading
import uuid
from typing import Any


class Raw:
    """JSON text that goes out exactly as written, valid or not."""

    def __init__(self, text: str) -> None:
        self.text = text


def encode(message: Any) -> bytes:
    """One message as compact UTF-8 JSON without newline; lone surrogates leave as `\\udXXX` escapes."""
    raws: dict[str, str] = {}

    def placeholder(value: Any) -> str:
        if not isinstance(value, Raw):
            raise TypeError(f"not JSON: {value!r}")
        token = f"raw:{uuid.uuid4().hex}"
        raws[token] = value.text
        return token

    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=placeholder)
    for token, raw in raws.items():
        text = text.replace(f'"{token}"', raw)
    return text.encode("utf-8", "backslashreplace")


class Output:
    """Our stdout: whole writes, one at a time, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # the real descriptor is ours alone; a stray print lands on stderr
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._is_closed = False

    def write(self, data: bytes) -> None:
        """Write all of it; a reader that went away is no error here, the end of stdin ends us."""
        with self._lock:
            if self._is_closed:
                return
            view = memoryview(data)
            try:
                while view:
                    view = view[os.write(self._fd, view) :]
            except BrokenPipeError:
                self._is_closed = True

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            os.close(self._fd)


class Journal:
    """Append-only file of what arrived: `{"pid", "received"}`, `{"pid", "unparsed"}` or `{"pid", "event", …}`.

    Every line is one `write` to an O_APPEND descriptor, so that restarted and parallel instances may share a file.
    """

    def __init__(self, path: str | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._fd = None if path is None else os.open(path, flags, 0o600)
        self.event("start", argv=sys.argv[1:])

    def event(self, name: str, **fields: Any) -> None:
        self._append({"event": name, **fields})

    def received(self, line: str, is_json: bool) -> None:
        """Note one line as it came: its JSON text verbatim, or the text itself when it is not JSON."""
        self._append({"received": Raw(line)} if is_json else {"unparsed": line})

    def _append(self, record: dict[str, Any]) -> None:
        if self._fd is not None:
            os.write(self._fd, encode({"pid": os.getpid(), **record}) + b"\n")
