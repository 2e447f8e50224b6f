"""The parameters of the Bearer challenge in `WWW-Authenticate` (RFC 6750 §3)."""

import re
from typing import Final

_LONGEST: Final = 8192
_SCHEME: Final = re.compile(r"(?:^|,)\s*bearer(?:\s+|$)", re.IGNORECASE)
_PARAMETER: Final = re.compile(r'\s*,?\s*([A-Za-z0-9_-]{1,64})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')

_UNFIT: Final = re.compile(r'[^ -~]|["\\]')


def challenge_of(header: str) -> dict[str, str]:
    """The parameters, names in lower case; empty if there is no such challenge. The first of two of a name counts."""
    text = header[:_LONGEST]
    start = _SCHEME.search(text)
    found: dict[str, str] = {}
    at = start.end() if start else len(text)
    while (pair := _PARAMETER.match(text, at)) is not None:
        value = re.sub(r"\\(.)", r"\1", pair[2]) if pair[2] is not None else pair[3]
        found.setdefault(pair[1].lower(), value)
        at = pair.end()
    return found


def composed(**parameters: str | None) -> str:
    """A challenge with these; what no challenge can hold is left out of the values, and so are those it empties."""
    fit = {name: _UNFIT.sub("", value).strip() for name, value in parameters.items() if value}
    pairs = [f'{name}="{value}"' for name, value in fit.items() if value]
    return f"Bearer {', '.join(pairs)}".rstrip()
