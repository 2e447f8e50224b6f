"""What a fuzzer is made of: something that makes inputs, and something that judges one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from zlib import crc32

from rigs.fuzz.mutate import mutated


@dataclass(frozen=True)
class Target:
    """`make` draws an input; `check` raises for one that is not treated as promised, and depends on the input alone."""

    name: str
    make: Callable[[Random], bytes]
    check: Callable[[bytes], None]


def seeded(data: bytes) -> Random:
    """The choices that a check makes, told by its input."""
    return Random(crc32(data))


def from_corpus(corpus: Sequence[bytes], words: Sequence[bytes] = ()) -> Callable[[Random], bytes]:
    """Draws mutants of the entries, at times an entry itself."""

    def make(rng: Random) -> bytes:
        data = rng.choice(corpus)
        return data if rng.random() < 0.02 else mutated(data, words, corpus, rng)

    return make
