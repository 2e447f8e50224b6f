"""Idempotency keys, stored with a call's stream, and digests of equal calls.

A key stands for one request of its principal, at every hub on the store.
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
    """The request's idempotency key. Raises `Problem` if malformed."""
    key = request.header("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise Problem(400, "invalid_idempotency_key", "Idempotency-Key has to be 1 to 255 characters of ASCII")
    return key


def digest_of(name: str, arguments: RawJson) -> str:
    """A digest of tool and arguments, whatever the white space or order of members.

    Numbers count as written. `arguments` must be JSON. Raises `Problem` if nested too deep.
    """
    try:
        value = json.loads(bytes(arguments), parse_int=_Number, parse_float=_Number, object_pairs_hook=_members)
        text = repr([name, value])
    except RecursionError:
        raise Problem(400, "invalid_json", "the arguments are nested too deep") from None
    return sha256(text.encode()).hexdigest()


class _Number(str):
    """A number as written, unlike every text."""

    def __repr__(self) -> str:
        return str(self)


def _members(pairs: list[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(dict(pairs).items(), key=lambda pair: pair[0]))
