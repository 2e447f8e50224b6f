"""Secret keys that hubs on one state folder share and keep across restarts."""

import re
import secrets
from typing import Final

from mcp_hub.logs import get_logger
from mcp_hub.stores.keyed_files import KeyedFiles

log = get_logger(__name__)

_SIZE: Final = 32
"""Bytes of a key."""
_KEPT: Final = re.compile(rb'"([0-9a-f]{%d})"' % (2 * _SIZE))


def stored_key(files: KeyedFiles, name: str) -> bytes:
    """The key, created at first use; a temporary one if it cannot be stored."""
    try:
        files.update(name, _new_key)
        stored = _KEPT.fullmatch(files.read(name) or b"")
    except OSError as problem:
        log.warning("key_not_kept", file=str(files.path(name)), reason=str(problem))
        stored = None
    return bytes.fromhex(stored[1].decode()) if stored is not None else secrets.token_bytes(_SIZE)


def _new_key(text: bytes | None) -> bytes | None:
    return None if _KEPT.fullmatch(text or b"") else b'"%s"' % secrets.token_hex(_SIZE).encode()
