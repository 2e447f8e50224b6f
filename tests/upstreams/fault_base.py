"""What every way to misbehave is made of: moments of the fixture server that a mode may override."""

import argparse
from pathlib import Path
from typing import Any, Protocol

from tests.upstreams.eras import Request
from tests.upstreams.instance import Session, Tool


class Handler(Protocol):
    """The HTTP connection of a request, as far as faults use it."""

    connection: Any
    close_connection: bool
    headers: Any
    wfile: Any


class Fault:
    """`normal`: no fault. What a mode changes, it overrides."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._calls = 0

    def starting(self) -> None:
        """Before anything is read."""

    def tools(self) -> dict[str, Tool]:
        """Tools that this mode adds."""
        return {}

    def swallows(self, method: str) -> bool:
        """Whether a request of this method gets no answer."""
        return False

    def requested(self, session: Session, request: Request) -> bool:
        """Any request of a known method; true if the fault has dealt with it."""
        return False

    def calling(self, session: Session, request: Request) -> bool:
        """A `tools/call` is about to run; true if the fault has dealt with it."""
        return self.is_meant(request.params.get("name")) and self.strikes(session, request)

    def is_meant(self, name: object) -> bool:
        """Whether a call of this tool is one that the fault strikes, which is noted."""
        if self.options.on not in (None, name):
            return False
        self._calls += 1
        return bool(self._calls >= self.options.count) and self._is_first()

    def _is_first(self) -> bool:
        """Whether no process has struck yet, where that matters."""
        if self.options.once is not None:
            try:
                Path(self.options.once).touch(exist_ok=False)
            except FileExistsError:
                return False
        return True

    def strikes(self, session: Session, request: Request) -> bool:
        """From the `--count`-th `tools/call` (of `--on TOOL`) on; true if that was the answer."""
        return False

    def frame(self, line: bytes, request: Request | None) -> bytes:
        """What is written for one message on stdout; `request` is set when the message is a result."""
        return line + b"\n"

    def posted(self, handler: Handler, message: dict[str, Any]) -> bool:
        """A message arrived over HTTP; true if the fault has answered."""
        return False

    def session_id(self, own: str) -> str:
        """What an HTTP session calls itself."""
        return own

    def ended(self) -> None:
        """Our stdin has ended."""


def is_call(request: Request | None) -> bool:
    return request is not None and request.method == "tools/call"
