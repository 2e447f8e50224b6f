"""The order of builds is total: of two builds, at most one makes the other retire."""

from itertools import permutations

from mcp_hub.attach.hello import is_newer

OLD_TO_NEW = ["0.1.0a1", "0.1.0rc1", "0.1.0", "0.1.0.1", "0.2.0", "0.10.0", "1.0.0", "10.0.0"]


def test_builds_are_in_their_order() -> None:
    for (place, one), (other_place, other) in permutations(enumerate(OLD_TO_NEW), 2):
        assert is_newer(one, other) == (place > other_place), (one, other)


def test_no_two_builds_make_each_other_retire() -> None:
    odd = ["", "x", "1", "1.0", "1.x", "1.0+local", "1.0-3", *OLD_TO_NEW]
    for one in odd:
        for other in odd:
            assert is_newer(one, other) + is_newer(other, one) <= 1
            assert one == other or is_newer(one, other) or is_newer(other, one)
