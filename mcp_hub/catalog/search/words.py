"""Comparable words of names, prose and queries; words used alike: `fetch` and `retrieve`.

Identifiers split at case changes, separators and digits; scripts without spaces into pairs of characters.
`bench/likeness.py` made the table of 31,000 words used alike; 5 MB in memory.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from struct import Struct

from mcp_hub.globs import late

# word for word what English puts between the words that say something, and the ways to ask politely
_STOP = """
a about above after again against all also am an and any are as at be been before being below between both but by can
could did do does doing down during each few for from further had has have having he help her here hers him his how i
id if ill im in into is it its itself ive just let lets like may me might more most must my myself need no nor not now
of off on once only or other ought our ours ourselves out over own please s same shall she should so some such t than
that the their theirs them then there these they this those through to too under until up very want was we were what
when where which while who whom why will with would you your youre yours yourself
"""

MAX_NAME = 256  # characters of a name that are looked at

# scripts that are written without spaces: Thai, Lao, Myanmar, Khmer, kana, Han, Hangul
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# no word is longer than 40 characters: the rest is another one
_CASED = "[A-Z]{1,40}(?=[A-Z][a-z])|[A-Z]?[a-z]{1,40}|[A-Z]{1,40}"
_ASCII = late(rf"{_CASED}|[0-9]{{1,40}}")
# compiled when they are needed, since that takes long, and most tools are in ASCII;
# Indic vowel signs are no letters to `re`, but belong to the word
_ANY = rf"[{_DENSE}]+|\d{{1,40}}|(?:[^\W\d_{_DENSE}]|[\u0900-\u0dff]){{1,40}}"
_IS_DENSE = f"[{_DENSE}]"
_DENSE_RUN = f"[{_DENSE}]+(?: [{_DENSE}]+)*"
_RUN = late(r"[A-Za-z]+")
_CASED_PIECE = late(_CASED)
# accents of Latin, Greek and Cyrillic, vowel points of Arabic
_MARKS = late("[\u0300-\u036f\u064b-\u0652]")
_CLAUSE = late(r"[.!?;:](?=\s|$)|\n|,\s|\b(?:and|then)\b|[()。！？；，、]", re.IGNORECASE)
_LATIN = late(r"[A-Za-z]{2}")
_VOWEL = late("[aeiouy]")


def words(text: str, limit: int) -> list[str]:
    """At most `limit` comparable words, in order and with repeats."""
    if text.isascii():
        return [_stem(word) for word in _ASCII.findall(text)[:limit]]
    collected: list[str] = []
    for run in re.findall(_ANY, folded(text)):
        collected += _pieces(run)
        if len(collected) >= limit:
            break
    return collected[:limit]


def telling(name: str) -> tuple[str, ...]:
    """The distinct words of a name that say something."""
    return tuple(dict.fromkeys(word for word in words(name[:MAX_NAME], 32) if not is_bare(word)))


def compounds(text: str, limit: int) -> list[str]:
    """Mixed-case words joined again, at most `limit`: `GitHub` → `github`."""
    joined: list[str] = []
    for run in _RUN.findall(text):
        if not (run.islower() or run.isupper()) and 2 <= len(_CASED_PIECE.findall(run)) <= 3:
            joined.append(_stem(run))
            if len(joined) == limit:
                break
    return joined


def is_bare(word: str) -> bool:
    return word in _BARE


def clauses(text: str) -> list[str]:
    return [part for part in _CLAUSE.split(text) if part and not part.isspace()]


def key(name: str) -> str:
    """A name without case and separators."""
    plain = folded(name.strip()[: MAX_NAME + 1]).lower()
    return "".join(filter(str.isalnum, plain)) or plain.strip()


def dense_runs(text: str) -> list[str]:
    """Runs of scripts without spaces; Korean ones with theirs."""
    return [] if text.isascii() else re.findall(_DENSE_RUN, text)


def has_latin(text: str) -> bool:
    return bool(_LATIN.search(folded(text)))


def folded(text: str) -> str:
    """Without accents, in usual widths."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text)[: 4 * len(text)]
    return unicodedata.normalize("NFC", _MARKS.sub("", decomposed))


def _pieces(run: str) -> list[str]:
    if run.isascii():
        return [_stem(word) for word in _ASCII.findall(run)]
    if not re.match(_IS_DENSE, run) or len(run) == 1:
        return [run.lower()]
    return [run[start : start + 2] for start in range(len(run) - 1)]


# a hub's catalog has some ten thousand distinct words
@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    word = word.lower()
    if len(word) <= 3:
        return word
    word = _singular(word)
    for ending in ("ing", "ed"):
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3 and _VOWEL.search(stem):
            # stopped → stop, but called → call
            word = stem[:-1] if stem[-1] == stem[-2] and stem[-1] not in "lsz" else stem
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


_BARE = frozenset(form for word in _STOP.split() for form in (word, _stem(word)))


PLACE = Path(__file__).with_name("likeness.z")
"""Words by line, in the form of `words.words`; a zero; for each word `NEIGHBOURS` times a `SLOT`."""
SLOT = Struct("<HB")
"""The number of another word, and 255 times how much it is alike; 0 for none."""
NEIGHBOURS = 16
LEAST = 0.4
"""The cosine above which words are alike, in proportion, up to 1."""


@cache
def load() -> tuple[dict[str, int], list[str], bytes]:
    """Numbers by word, words by number, slots."""
    words, _, slots = zlib.decompress(PLACE.read_bytes()).partition(b"\0")
    names = words.decode().split("\n")
    return {name: number for number, name in enumerate(names)}, names, slots


def is_word(word: str) -> bool:
    return word in load()[0]


def like(word: str) -> Iterator[tuple[str, float]]:
    """The words most like one, with likeness over 0 and under 1."""
    numbers, names, slots = load()
    if (number := numbers.get(word)) is not None:
        size = NEIGHBOURS * SLOT.size
        for neighbour, share in SLOT.iter_unpack(slots[number * size : (number + 1) * size]):
            if share:
                yield names[neighbour], share / 255
