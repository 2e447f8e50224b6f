"""The longest part of a text that makes at most so many tokens. Pure."""

from collections.abc import Callable
from typing import Final

Estimate = Callable[[str], int]
"""The tokens of a text: never more than its bytes in UTF-8, and none for an empty one."""

DENSE: Final = 4
"""Bytes of a character at most, and with that its tokens."""
_SPARSE: Final = 16
"""Characters that one token stands for at most, here: of longer ones a text is taken to have more tokens than it has,
so that an estimate never reads megabytes."""
_NEAR: Final = 0.95
"""Of the tokens that are there to be used is enough."""
_ROUNDS: Final = 10


def is_surely_over(text: str, tokens: int) -> bool:
    """Whether the length alone tells that the text makes more than `tokens`."""
    return len(text) > tokens * _SPARSE


def head_within(text: str, tokens: int, estimate: Estimate) -> int:
    """Characters of the text's start that make at most `tokens`: nearly as many as can be."""
    return _most(len(text), tokens, lambda count: estimate(text[:count]))


def tail_within(text: str, tokens: int, estimate: Estimate) -> int:
    """The same of its end."""
    return _most(len(text), tokens, lambda count: estimate(text[len(text) - count :]))


def _most(length: int, tokens: int, cost: Callable[[int], int]) -> int:
    """Guesses by the ratio that the last guess had, and by halves in between; `fits` always holds."""
    if tokens <= 0:
        return 0
    bound = min(length, tokens * _SPARSE)
    fits, too_many = min(bound, tokens // DENSE), bound + 1
    guess = max(min(bound, tokens * 3), fits)
    for turn in range(_ROUNDS):
        spent = cost(guess)
        if spent <= tokens:
            fits = guess
        else:
            too_many = guess
        if too_many - fits <= 1 or tokens * _NEAR <= spent <= tokens:
            break
        by_ratio = guess * tokens // spent if spent and turn % 2 == 0 else (fits + too_many) // 2
        guess = min(max(by_ratio, fits + 1), too_many - 1)
    return fits
