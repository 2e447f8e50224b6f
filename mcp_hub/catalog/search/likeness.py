"""Words that are used alike: `fetch` and `retrieve`, `folder` and `directory`.

A table of about 31,000 words, each with the words nearest to it by the vectors of a model that has read code and prose
(`bench/likeness.py` makes it, NOTICE names its source). Nothing is computed with vectors here. It is read when tools
are first indexed, and takes 5 MB from then on.
"""

import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from struct import Struct

PLACE = Path(__file__).with_name("likeness.z")
"""Words, one a line, in the form of `words.words`; a zero; and for each word `NEIGHBOURS` times a `SLOT`."""
SLOT = Struct("<HB")
"""The number of another word, and 255 times how much it is alike; 0 for none."""
NEIGHBOURS = 16
LEAST = 0.4
"""The cosine from which words are alike at all; more is alike in proportion, up to 1."""


@cache
def load() -> tuple[dict[str, int], list[str], bytes]:
    """The table, read once: numbers by word, words by number, slots."""
    words, _, slots = zlib.decompress(PLACE.read_bytes()).partition(b"\0")
    names = words.decode().split("\n")
    return {name: number for number, name in enumerate(names)}, names, slots


def like(word: str) -> Iterator[tuple[str, float]]:
    """The words most like one, with their likeness over 0, under 1; none of a word that is not in the table."""
    numbers, names, slots = load()
    if (number := numbers.get(word)) is not None:
        size = NEIGHBOURS * SLOT.size
        for neighbour, share in SLOT.iter_unpack(slots[number * size : (number + 1) * size]):
            if share:
                yield names[neighbour], share / 255
