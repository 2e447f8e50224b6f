"""Messages of a server that are for no caller: unreadable ones, and log messages that belong to no call."""

from typing import Final

import anyio
import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide, shown
from mcp_hub.protocol.eras import LOG_LEVELS
from mcp_hub.protocol.jsonrpc.envelope import BadMessage
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_hub.types import RawObject

log = get_logger(__name__)

_LINES: Final = 20
_HEAD: Final = 4096
"""Bytes of a line that are looked at."""
_NO_METHOD: Final = b"%d" % METHOD_NOT_FOUND
_GRAVE: Final = frozenset(LOG_LEVELS[LOG_LEVELS.index("warning") :])
_MOST: Final = {True: 20, False: 200}
"""Messages of one connection within a minute that are logged, by whether they are grave."""
_MINUTE: Final = 60.0
_SHOWN: Final = 500


def note(noise: list[str], bad: BadMessage, line: bytes) -> bool:
    """Adds the line to the last ones; returns whether it may be an answer for an unknown request.

    A broken request is not one, nor is the error of some servers for a notification that they do not know.
    """
    head = line[:_HEAD]
    is_message = b'"jsonrpc"' in head or b'"result"' in head  # its content is for one caller, noise is for all
    text = f"a message ({bad.reason})" if is_message else hide(head[:800].decode("utf-8", "replace"))[:200]
    _keep(noise, text)
    return is_message and bad.id is None and b'"method"' not in head and _NO_METHOD not in head


def note_nameless(noise: list[str], method: str) -> RpcError | None:
    """Adds a request whose id no answer can name to the last lines; the error to answer it with, unless it wants none.

    It has no id there (JSON-RPC 2.0 §5). Some servers write `"id":null` in notifications.
    """
    refusal = RpcError("The id of a request is neither a string nor an integer.", code=INVALID_REQUEST)
    _keep(noise, f"a message ({refusal.message})")
    return None if method.startswith("notifications/") else refusal


def _keep(noise: list[str], text: str) -> None:
    noise.append(f"stdout: {text}")
    del noise[:-_LINES]


class StrayMessages:
    """Log messages of one server that belong to no call: they stay in the hub's log.

    Those of `warning` and above have its usual level, 20 a minute, the others `debug`, 200 a minute; more are only
    mentioned.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._told = {True: 0, False: 0}
        self._until = 0.0

    def note(self, severity: str, params: RawObject) -> None:
        now = anyio.current_time()
        if now >= self._until:
            self._told, self._until = {True: 0, False: 0}, now + _MINUTE
        is_grave = severity in _GRAVE
        self._told[is_grave] += 1
        tell = log.info if is_grave else log.debug
        if self._told[is_grave] <= _MOST[is_grave]:
            said = {name: _text(params[name]) for name in ("logger", "data") if name in params}
            tell("upstream_log", upstream=self._server, severity=severity[:20], **said)
        elif self._told[is_grave] == _MOST[is_grave] + 1:
            tell("upstream_log_floods", upstream=self._server, severity=severity[:20])


def _text(raw: msgspec.Raw) -> str:
    """The beginning of a text, or of what else was sent, without secrets and control characters."""
    head = bytes(memoryview(raw)[: 8 * _SHOWN])
    try:
        text = msgspec.json.decode(head, type=str)
    except msgspec.DecodeError:
        text = head.decode("utf-8", "replace")
    return shown(text)[:_SHOWN]
