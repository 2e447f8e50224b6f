"""The forms of providers' tokens, by which a token is known that nobody has declared as a secret."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

_TOKEN: Final = (
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F]{2}))(?:"
    r"(?:gh[opsur]|github_pat|gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)|xox[a-z]|xapp|ntn|hf|npm|pypi|lin_api"
    r"|lin_oauth|npg|napi|sbp|sb_secret|fig[dour]|tvly|pplx|gsk|xai|do[opr]_v1|nfp|sntry[su]|glsa|glc|whsec|shp(?:at|ca|pa|ss)"
    r"|dckr_[po]at|pcsk|pscale_(?:tkn|pw|oauth)|bk[uo]a|CCIPAT|lsv2_(?:pt|sk)|apify_api|ph[xs]|ops|tskey|PMAK|NRAK"
    r"|GOCSPX|CFPAT|sq[upa]|dbt[cu]|e2b|bb_live|nvapi|mdb_sa_sk|cf(?:k|ut|at)|HRKU|sgp|AGE-SECRET-KEY|r8|waka|atlas"
    r"|[sr]k_(?:live|test)|sq0[a-z]{3})[_-][\w.-]{12,}"
    r"|(?:sk|fc|re|pat|key|secret|ak|api)[_-](?=[\w-]{0,60}[0-9])[\w-]{0,99}?[A-Za-z0-9]{16,}[\w-]*"
    r"|(?:AKIA|ASIA|ABIA|ACCA|AIza|LTAI|AKID|ATATT3|ATBB|ATTA|EAAA|dapi|ya29\.|hv[sb]\.|SG\.|dp\.[a-z]+\.)[\w.-]{16,}"
    r"|[0-9]{8,10}:AA[\w-]{30,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{32,}"
)
"""Texts that have the form of a provider's token; an escape of JSON or of a URL may stand before them."""
_JWT: Final = r"|eyJ[\w-]{8,2000}\.[\w-]{8,8000}\.[\w-]*"
_LONG: Final = b"x" * 15
"""The shortest run of characters of tokens that is looked at."""
_RUNS: Final = bytes(
    ord("x") if chr(code).isalnum() and code < 128 or chr(code) in "_.-" else 32 for code in range(256)
)
_NUMBER: Final = 11
"""Characters before a run that belong to the token: a number and a colon."""
_PIECES: Final = re.compile(r"[A-Za-z0-9]{10,}")


@cache
def _pattern(more: str = "") -> re.Pattern[str]:
    """Compiled once it is needed, which takes milliseconds."""
    return re.compile(f"{_TOKEN}{more})")


def tokens_in(text: str) -> list[str]:
    """Texts within the text that have the form of a token, a JWT included; some read like words."""
    return _pattern(_JWT).findall(text)


def token_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where tokens are in the text, JWTs aside: beginnings and ends. What reads like words (`npm-run-all`) is not one.

    Takes 1 to 2 µs a kB of a text without long runs, and time in proportion to the text in any case.
    """
    marks = text.encode("latin-1", "replace").translate(_RUNS)
    start = marks.find(_LONG)
    while start >= 0:
        end = marks.find(b" ", start)
        end = len(text) if end < 0 else end
        for match in _pattern().finditer(text, max(0, start - _NUMBER), end):
            if any(not piece.isalpha() and not piece.isdigit() for piece in _PIECES.findall(match[0])):
                yield match.span()
        start = marks.find(_LONG, end)
