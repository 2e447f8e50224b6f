"""Ids: what they look like, that they are the random bytes and nothing less."""

import itertools
import re

from mcp_hub.ids import ids, new_call_id, new_session_id


def test_ids_are_crockford_base32_with_their_prefix() -> None:
    assert re.fullmatch(r"st_[0-9A-HJKMNP-TV-Z]{26}", new_call_id())
    assert re.fullmatch(r"se_[0-9A-HJKMNP-TV-Z]{26}", new_session_id())


def test_no_id_comes_twice() -> None:
    made = [new_call_id() for _ in range(1000)]
    assert len(set(made)) == len(made)


def test_every_bit_of_the_random_source_is_in_the_ids() -> None:
    asked: list[int] = []

    def random(count: int) -> bytes:
        asked.append(count)
        return bytes([len(asked)]) * count

    first = list(itertools.islice(ids(random), 257))
    assert asked == [4160, 4160]
    assert asked[0] * 8 == 256 * 130  # 130 bits for each of 256 ids
    assert first[0] != first[256]  # the second refill


def test_a_flipped_bit_changes_exactly_one_id() -> None:
    def made(flip: int) -> list[str]:
        source = bytearray(4160)
        source[flip // 8] ^= 1 << (flip % 8)
        return list(itertools.islice(ids(lambda _: bytes(source)), 256))

    plain = list(itertools.islice(ids(bytes), 256))
    for flip in (0, 129, 130, 20_000, 33_279):
        assert sum(a != b for a, b in zip(plain, made(flip), strict=True)) == 1
