"""Masks secrets in the hub's own words.

`learn` adds to the current owner, `hide` masks all owners' secrets. A command has one owner, each hub in a host program
its own.
"""

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final
from urllib.parse import unquote

from mcp_hub.secret_forms import has_runs, token_spans, with_lines, written_forms

MASK: Final = "***"
_TOKEN: Final = 8192
"""Characters before a part that may begin its token."""
_TOKEN_HEAD: Final = 64
"""Characters after a part that show a token's beginning."""
_SHORTEST: Final = 4  # characters: blacking out less would leave nothing readable
_MOST: Final = 10_000
"""Secrets per owner; the oldest goes first."""
_SQUEEZE: Final = 4
"""Times more text is read than shown: masks shorten."""
_LONGEST: Final = 1 << 18
"""Characters shown: servers' errors may have megabytes."""
_RUNS: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,}")
"""Possible tokens."""
_HEX: Final = "[0-9a-fA-F]"
_NEXT: Final = f"%[89abAB]{_HEX}"
_ESCAPE: Final = (
    rf"%(?:[0-7]{_HEX}|[cdCD]{_HEX}{_NEXT}|[eE]{_HEX}(?:{_NEXT}){{2}}|[fF][0-7](?:{_NEXT}){{3}})"
    rf"|\\(?:[\"'\\/bfnrt]|u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}|x{_HEX}{{2}}|U000{_HEX}{{5}})"
)
"""One escaped character of URLs, JSON or Python."""
_COMMON: Final = (r"\n", r"\"", r"\t", r"\r")
"""The most frequent escapes."""
_LEVELS: Final = 3
"""Nested escapes: an error in an error in a log line."""
_WIDEST: Final = 12
"""Characters of a doubly escaped byte."""
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Control, direction and line break characters, surrogates, and invisible ones (Unicode 16,
`Default_Ignorable_Code_Point`)."""
_PICTURE: Final = "\xa9\xae\u203c\u2049\u2122-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_JOINED: Final = (
    f"[#*0-9]\ufe0f\u20e3|[{_PICTURE}][\ufe0e\ufe0f]|[{_PICTURE}\ufe0f]\u200d[{_PICTURE}]"
    "|[\u0620-\u06ff\u0750-\u077f\u08a0-\u0dff][\u200c\u200d][\u0620-\u06ff\u0750-\u077f\u08a0-\u0dff]"
)
"""A joiner or selector within an emoji, or an Arabic or Indic word."""
_JOINTS: Final = "\u200c\u200d\ufe0e\ufe0f"
_BEARER: Final = "bearer"


class Mask:
    """Masks secrets and tokens in linear time: also in JSON, Python, URLs, Base64, hexadecimal, and mixed escapes."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        self._secrets = [secret for whole in secrets for secret in with_lines(whole) if len(secret) >= _SHORTEST]
        forms = {form for secret in self._secrets for form in written_forms(secret)}
        escaped = (_WIDEST * len(secret.encode("utf-8", "replace")) for secret in self._secrets)
        self.longest = max((*map(len, forms), *escaped), default=0)
        self._pattern = _any_of(forms)

    def __call__(self, text: str) -> str:
        spans = self.spans(text)
        return _blackened(text, spans) if spans else str(text)  # also of a subclass

    def part(self, text: str, start: int, end: int, *, is_whole: bool = True) -> str:
        """Characters `start` to `end`, masked; also secrets cut at either end.

        `is_whole`: the author's text ends with `text`.
        """
        first, last = max(0, start - self.longest - _TOKEN), end + self.longest + _TOKEN_HEAD
        near = text[first:last]
        spans = self.spans(near, is_whole=is_whole and len(text) <= last)
        start, end = start - first, min(end - first, len(near))
        cut = [(max(a, start) - start, min(b, end) - start) for a, b in spans if b > start and a < end]
        return _blackened(near[start:end], cut)

    def spans(self, text: str, *, is_whole: bool = True) -> list[tuple[int, int]]:
        """Begin and end of each secret, sorted; they may overlap."""
        spans: list[tuple[int, int]] = []
        if has_runs(text):
            runs = _RUNS.finditer(text) if "eyJ" in text or _BEARER in text.lower() else ()
            spans = [*token_spans(text), *(span for run in runs for span in _tokens(run, is_whole=is_whole))]
        if self._pattern is not None:
            spans += (match.span() for match in self._pattern.finditer(text))
            spans += self._escaped(text) if "%" in text or "\\" in text and self._has_escapes(text) else []
        return sorted(spans)

    @cached_property
    def _has_escapes(self) -> Callable[[str], re.Match[str] | None]:
        """Searches for an escape that may be part of a secret: 2 µs for each kB with line breaks."""
        harmless = [escape for escape in _COMMON if not any(_character(escape) in secret for secret in self._secrets)]
        return re.compile("".join((r"\\", *(f"(?!{re.escape(escape[1])})" for escape in harmless)))).search

    @cached_property
    def _plain(self) -> re.Pattern[str] | None:
        forms = {*self._secrets}
        for _ in range(_LEVELS):
            forms |= {re.sub(_ESCAPE, _unescaped, form) for form in forms}
        forms = {form for form in forms if len(form) >= _SHORTEST}
        return _any_of(forms | {form.replace(" ", "+") for form in forms})

    def _escaped(self, text: str) -> list[tuple[int, int]]:
        if self._plain is None:
            return []
        spans_found: list[tuple[int, int]] = []
        levels = [text]
        while len(levels) <= _LEVELS and len(plain := re.sub(_ESCAPE, _unescaped, levels[-1])) < len(levels[-1]):
            spans = [match.span() for match in self._plain.finditer(plain)]
            for level in reversed(levels) if spans else ():
                original = _places(level)
                spans = [(original(start), original(end)) for start, end in spans]
            spans_found += spans
            levels.append(plain)
        return spans_found


def _any_of(forms: Collection[str]) -> re.Pattern[str] | None:
    ordered = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile(_alternatives(ordered)) if ordered else None


def _alternatives(forms: list[str], depth: int = 2) -> str:
    """Grouped by first characters: fast with hundreds."""
    if depth == 0:
        return "|".join(map(re.escape, forms))
    groups: dict[str, list[str]] = {}
    for form in forms:
        groups.setdefault(form[0], []).append(form[1:])
    return "|".join(f"{re.escape(first)}(?:{_alternatives(tails, depth - 1)})" for first, tails in groups.items())


def _unescaped(escape: re.Match[str]) -> str:
    return _character(escape[0])


@lru_cache(maxsize=1024)
def _character(escape: str) -> str:
    if escape[0] == "%":
        return unquote(escape)[0]
    if escape[1] in "xU":
        return chr(min(int(escape[2:], 16), sys.maxunicode))
    return "'" if escape[1] == "'" else json.loads(f'"{escape}"')


def _places(text: str) -> Callable[[int], int]:
    escapes = [escape.span() for escape in re.finditer(_ESCAPE, text)]
    ends = [0, *(end for _, end in escapes)]
    saved = [0, *accumulate(end - start - 1 for start, end in escapes)]
    plain_ends = [end - less for end, less in zip(ends, saved, strict=True)]
    return lambda index: index + saved[bisect_right(plain_ends, index) - 1]


def _blackened(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts: list[str] = []
    at = 0
    for start, end in spans:
        if start >= at:
            parts += (text[at:start], MASK)
        at = max(at, end)
    return "".join((*parts, text[at:]))


def _tokens(run: re.Match[str], *, is_whole: bool) -> Iterator[tuple[int, int]]:
    """A JWT, or text after Bearer."""
    text = run[0]
    at = text.find("eyJ")
    is_cut = not is_whole and run.end() == len(run.string)
    before = run.string[max(0, run.start() - len(_BEARER) - 2) : run.start()]
    if before[-1:].isspace() and before.rstrip().lower().endswith(_BEARER):
        yield run.span()
    elif at >= 0 and (is_cut or text.count(".", at) >= 2):
        yield run.start() + at, run.end()


class Secrets:
    """One owner's secrets, masked from `learn` until `forget`."""

    def __init__(self) -> None:
        self._values: dict[str, None] = {}

    def learn(self, secrets: Iterable[str]) -> None:
        """Adds secrets; beyond 10,000 the oldest are dropped."""
        secrets_known = self._values
        fresh = [secret for secret in sorted(secrets) if secret not in secrets_known]
        if not fresh:
            return
        secrets_known.update(dict.fromkeys(fresh))
        for oldest in list(secrets_known)[: max(0, len(secrets_known) - _MOST)]:
            del secrets_known[oldest]
        _every.change(self, secrets_known)

    def forget(self) -> None:
        if self._values:
            self._values = {}
            _every.change(self, self._values)

    @contextmanager
    def owning(self) -> Iterator[None]:
        """This task and its child tasks learn for this owner."""
        token = _owner.set(self)
        try:
            yield
        finally:
            _owner.reset(token)


class _EverySecret:
    """All owners' secrets; their mask is made late."""

    def __init__(self) -> None:
        self.by_owner: Mapping[Secrets, tuple[str, ...]] = {}
        self._cached: tuple[Mapping[Secrets, tuple[str, ...]], Mask] = (self.by_owner, Mask())

    def change(self, owner: Secrets, values: Collection[str]) -> None:
        by_other = {holder: secrets for holder, secrets in self.by_owner.items() if holder is not owner}
        self.by_owner = {**by_other, owner: tuple(values)} if values else by_other

    @property
    def mask(self) -> Mask:
        by_owner, cached = self.by_owner, self._cached  # another thread may replace them, and changes neither
        if cached[0] is not by_owner:
            cached = self._cached = (
                by_owner,
                Mask({secret: None for secrets in by_owner.values() for secret in secrets}),
            )
        return cached[1]


_every: Final = _EverySecret()
_of_process: Final = Secrets()
_owner: Final[ContextVar[Secrets]] = ContextVar("secrets_owner", default=_of_process)


def learn(secrets: Iterable[str]) -> None:
    """Adds secrets to the current owner."""
    _owner.get().learn(secrets)


def forget() -> None:
    """Drops every owner's secrets."""
    for owner in list(_every.by_owner):
        owner.forget()


def hide(text: str) -> str:
    """`text` with known secrets masked, cut at 256 Ki characters."""
    if len(text) > _LONGEST:
        return f"{_every.mask.part(text, 0, _LONGEST)}… ({len(text)} characters)"
    return _every.mask(text)


def hide_head(text: str | bytes | memoryview, limit: int, mark: str = "") -> str:
    """The first `limit` characters, masked before the cut; `mark` replaces a cut end. For every foreign text."""
    mask, is_whole = _every.mask, True
    reach = _SQUEEZE * limit + mask.longest
    if not isinstance(text, str):
        size = _SQUEEZE * (reach + mask.longest + _TOKEN_HEAD)  # a character has four bytes at most
        is_whole, text = len(text) <= size, bytes(text[:size]).decode("utf-8", "replace")
    if is_whole and len(text) <= reach:
        masked = mask(text)
        if len(masked) <= limit:
            return masked
    else:
        masked = mask.part(text, 0, reach, is_whole=is_whole)
    return masked[: max(limit - len(mark), 0)] + mark


def hide_start(text: bytes | memoryview, limit: int) -> tuple[str, bool]:
    """The first `limit` characters, masked, and whether they had secrets. Cheaper than `hide_head`."""
    size = 4 * (limit + _every.mask.longest + _TOKEN_HEAD)
    near = bytes(text[:size]).decode("utf-8", "replace")
    masked = _every.mask.part(near, 0, limit, is_whole=len(text) <= size)
    return masked, masked != near[:limit]


def hide_tail(text: str, limit: int, mark: str = "") -> str:
    """The last `limit` characters, masked before the cut; `mark` begins a cut text."""
    mask = _every.mask
    reach = _SQUEEZE * limit + mask.longest
    masked = mask(text) if len(text) <= reach else mask.part(text, len(text) - reach, len(text))
    if len(masked) <= limit and len(text) <= reach:
        return masked
    return mark + masked[max(0, len(masked) - limit + len(mark)) :]


def hide_part(text: str, start: int, end: int) -> str:
    """Characters `start` to `end`, masked; also secrets cut at either end."""
    return _every.mask.part(text, max(0, start), min(end, len(text)))


def visible(text: str) -> str:
    """Escapes control and invisible characters, for terminals; line breaks, tabs and joiners in words stay."""
    return _spelled(lambda char: _escape(ord(char)), text.replace("\r\n", "\n"))


def visible_json(text: bytes) -> bytes:
    """JSON with the characters of `visible` as JSON escapes."""
    return _spelled(_json_escape, text.decode("utf-8", "replace")).encode()


def _spelled(spell: Callable[[str], str], text: str) -> str:
    return _CONTROL.sub(lambda match: match[0] if _is_joint(match) else spell(match[0]), text)


def _is_joint(match: re.Match[str]) -> bool:
    return (
        match[0] in _JOINTS
        and match.start() > 0
        and re.match(_JOINED, match.string[match.start() - 1 : match.end() + 1]) is not None
    )


def _json_escape(char: str) -> str:
    if char == "\r":  # between values, where it is a blank
        return " "
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(text: str) -> str:
    """`hide`, with the characters of `visible` as `<U+001B>`."""
    return _spelled(lambda char: f"<U+{ord(char):04X}>", hide(text))


def hide_within(value: object, hidden: Callable[[str], str] = hide) -> object:
    """A copy of plain data with texts hidden; keys stay."""
    match value:
        case str():
            return hidden(value)
        case dict():
            return {key: hide_within(item, hidden) for key, item in value.items()}
        case list() | tuple():
            return [hide_within(item, hidden) for item in value]
        case _:
            return value
