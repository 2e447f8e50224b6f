"""Words that are used alike: `fetch` and `retrieve`, `folder` and `directory`.

A table of 31,000 words, made by `bench/likeness.py`; 5 MB in memory.
"""

import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from struct import Struct

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
