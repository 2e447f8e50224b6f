"""Idempotency keys, and the digest by which two requests are the same call.

A key stands for one request of its principal. It is kept with the call's stream, so it holds at every hub on the store
and after a restart. The hub decides which call a request joins (`HubPort.durable`).
"""

import json
import re
from hashlib import sha256
from typing import Final

from mcp_hub.fronts.rest.exchange import RestRequest
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.types import RawJson

_KEY: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,253}[\x21-\x7e])?")


def key_of(request: RestRequest) -> str | None:
    """The idempotency key of a request. Raises `Problem` for a malformed one."""
    key = request.header("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Problem(400, "invalid_idempotency_key", "Idempotency-Key has to be 1 to 255 characters of ASCII")
    return key


def digest_of(name: str, arguments: RawJson) -> str:
    """Stands for the tool and its arguments by content: white space and the order of members do not count.

    Numbers count as they are written. Raises `Problem` if `arguments`, which are valid JSON, are nested too deep.
    """
    try:
        value = json.loads(bytes(arguments), parse_int=_Number, parse_float=_Number, object_pairs_hook=_members)
        text = repr([name, value])
    except RecursionError:
        raise Problem(400, "invalid_json", "the arguments are nested too deep") from None
    return sha256(text.encode()).hexdigest()


class _Number(str):
    """A number as it is written, which no text looks like."""

    def __repr__(self) -> str:
        return str(self)


def _members(pairs: list[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    """An object, which no array looks like: the last of equal names counts."""
    return tuple(sorted(dict(pairs).items(), key=lambda pair: pair[0]))
