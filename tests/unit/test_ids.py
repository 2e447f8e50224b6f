"""Ids: what they look like, that they are the random bytes and nothing less."""

import itertools
import re
from collections import Counter

from mcp_hub.ids import ids, new_call_id, new_session_id


def test_ids_are_crockford_base32_with_their_prefix() -> None:
    assert re.fullmatch(r"st_[0-9A-HJKMNP-TV-Z]{26}", new_call_id())
    assert re.fullmatch(r"se_[0-9A-HJKMNP-TV-Z]{26}", new_session_id())


def test_each_character_is_five_bits_of_the_random_source() -> None:
    asked: list[int] = []

    def random(count: int) -> bytes:
        asked.append(count)
        return bytes([len(asked)]) * count

    first = list(itertools.islice(ids(random), 257))
    assert asked == [256 * 26] * 2
    assert first[0] != first[256]  # the second refill
    every = "".join(itertools.islice(ids(lambda count: (bytes(range(256)) * count)[:count]), 256))
    assert set(Counter(every).values()) == {len(every) // 32}
