"""Keeps secrets out of what the hub itself says: logs, errors, states, pages.

What is known to be secret (`Loaded.secrets`) is learned once for the whole process, as a logger is configured once:
a place that had to be handed it could be forgotten. What a server answers to a call is data and never comes here.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

__all__ = ["MASK", "Mask", "forget", "hide", "hide_within", "learn"]

MASK: Final = "***"
_SHORTEST: Final = 4
"""Characters: blacking out less would leave nothing readable."""
_MOST: Final = 10_000
"""Secrets remembered, those of files read before included; the oldest goes first."""
_LONGEST: Final = 1 << 18
"""Characters of a text that are shown: a server can put megabytes into an error, and each would be searched."""
_RUNS: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")
"""What may be a token; each run is looked at once, so that no text takes long."""
_BEARER: Final = "bearer"


class Mask:
    """Blacks out `secrets`, the longest first, also as JSON, Python and URLs write them, and what is like a token."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
        found = sorted(forms, key=lambda form: (-len(form), form))
        self.longest = len(found[0]) if found else 0
        self._pattern = re.compile("|".join(map(re.escape, found))) if found else None

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _RUNS.sub(_without_token, text)


def _without_token(run: re.Match[str]) -> str:
    """The run without what looks like a token that nobody has told of: a JWT, or what follows the word Bearer."""
    text = run[0]
    at = text.find("eyJ")
    if at >= 0 and text.count(".", at) >= 2:
        return text[:at] + MASK
    before = run.string[max(0, run.start() - len(_BEARER) - 2) : run.start()]
    return MASK if before[-1:].isspace() and before.rstrip().lower().endswith(_BEARER) else text


def _forms(secret: str) -> Iterator[str]:
    yield from (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(secret)[1:-1])[1:-1],  # an error within an error
        repr(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
        secret.encode("unicode_escape").decode(),
    )


class _Known:
    """The secrets of this process."""

    def __init__(self) -> None:
        self.secrets: dict[str, None] = {}
        self.mask = Mask()


_known: Final = _Known()


def learn(secrets: Iterable[str]) -> None:
    """From now on `hide` blacks out these, too."""
    known = _known.secrets
    fresh = [secret for secret in sorted(secrets) if secret not in known]
    if not fresh:
        return
    known.update(dict.fromkeys(fresh))
    for oldest in list(known)[: max(0, len(known) - _MOST)]:
        del known[oldest]
    _known.mask = Mask(known)


def forget() -> None:
    """Nothing is known any more, as in a new process."""
    _known.secrets.clear()
    _known.mask = Mask()


def hide(text: str) -> str:
    """`text` with everything blacked out that is known to be secret; cut if it is longer than 256 Ki characters."""
    if len(text) > _LONGEST:
        shown = _known.mask(text[:_LONGEST])
        whole = max(0, len(shown) - _known.mask.longest)  # what is cut in two at the end goes as well
        return f"{shown[:whole]}… ({len(text)} characters)"
    return _known.mask(text)


def hide_within(value: object) -> object:
    """A copy of plain data with its texts hidden; its keys, numbers and whatever else is in it stay."""
    match value:
        case str():
            return hide(value)
        case dict():
            return {key: hide_within(item) for key, item in value.items()}
        case list() | tuple():
            return [hide_within(item) for item in value]
        case _:
            return value
