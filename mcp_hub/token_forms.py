"""The forms of providers' tokens, by which a token is known that nobody has declared as a secret."""

import re
from collections.abc import Iterator
from typing import Final

from mcp_hub.globs import late

TOKENS: Final = late(
    r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F]{2}))(?:"
    r"(?:gh[opsur]|github_pat|gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)|xox[a-z]|xapp|ntn|hf|npm|pypi|lin_api"
    r"|lin_oauth|npg|napi|sbp|sb_secret|fig[dour]|tvly|pplx|gsk|xai|do[opr]_v1|nfp|sntry[su]|glsa|glc|whsec|shp(?:at|ca|pa|ss)"
    r"|dckr_[po]at|pcsk|pscale_(?:tkn|pw|oauth)|bk[uo]a|CCIPAT|lsv2_(?:pt|sk)|apify_api|ph[xs]|ops|tskey|PMAK|NRAK"
    r"|GOCSPX|CFPAT|sq[upa]|dbt[cu]|e2b|bb_live|nvapi|mdb_sa_sk|cf(?:k|ut|at)|HRKU|sgp|AGE-SECRET-KEY|r8|waka|atlas"
    r"|[sr]k_(?:live|test)|sq0[a-z]{3})[_-][\w.-]{12,}"
    r"|(?:sk|fc|re|pat|key|secret|ak|api)[_-](?=[\w-]{0,200}[0-9])[\w-]{0,99}?[A-Za-z0-9]{16,}[\w-]*"
    r"|(?:AKIA|ASIA|ABIA|ACCA|AIza|LTAI|AKID|ATATT3|ATBB|ATTA|EAAA|dapi|ya29\.|hv[sb]\.|SG\.|dp\.[a-z]+\.)[\w.-]{16,}"
    r"|eyJ[\w-]{8,2000}\.[\w-]{8,8000}\.[\w-]*|[0-9]{8,10}:AA[\w-]{30,}|pat[A-Za-z0-9]{14}\.[0-9a-f]{32,})"
)
"""Texts that have the form of a provider's token; an escape of JSON or of a URL may stand before them."""
_LONG: Final = b"x" * 15
"""The shortest run of characters of tokens that is looked at."""
_RUNS: Final = bytes(
    ord("x") if chr(code).isalnum() and code < 128 or chr(code) in "_.-" else 32 for code in range(256)
)
_NUMBER: Final = 11
"""Characters before a run that belong to the token: a number and a colon."""
_RANDOM: Final = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{10,}")


def token_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where tokens are in the text: beginnings and ends. What reads like words (`npm-run-all`) is not a token.

    Takes 1 to 2 µs a kB of a text without long runs.
    """
    marks = text.encode("latin-1", "replace").translate(_RUNS)
    start = marks.find(_LONG)
    while start >= 0:
        end = marks.find(b" ", start)
        end = len(text) if end < 0 else end
        for match in TOKENS.finditer(text, max(0, start - _NUMBER), end):
            if _RANDOM.search(match[0]) is not None:
                yield match.span()
        start = marks.find(_LONG, end)
