"""Forms of providers' tokens, and encodings of secrets."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from typing import Final
from urllib.parse import quote, quote_plus

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
"""Forms of providers' tokens, perhaps after an escape of JSON or a URL."""
_JWT: Final = r"|eyJ[\w-]{8,2000}\.[\w-]{8,8000}\.[\w-]*"
_LONG: Final = b"x" * 15
"""The shortest run looked at."""
_RUNS: Final = bytes(
    ord("x") if chr(code).isalnum() and code < 128 or chr(code) in "_.-" else 32 for code in range(256)
)
_WIDE_RUNS: Final = bytes(ord("x") if chr(code) in "~+/=" else each for code, each in enumerate(_RUNS))
"""`_RUNS` with characters of Base64."""
_NUMBER: Final = 11
"""Characters before a run: a number and a colon."""
_PIECES: Final = re.compile(r"[A-Za-z0-9]{10,}")
_LINE: Final = 16
"""Characters of a line that counts as a secret."""
_WRAPPED: Final = 8
"""Bytes of a secret from which its encodings are searched."""
_URL_SAFE: Final = str.maketrans("+/", "-_")


@cache
def _pattern(more: str = "") -> re.Pattern[str]:
    return re.compile(f"{_TOKEN}{more})")


def tokens_in(text: str) -> list[str]:
    """Texts in a token's form, JWTs included; some are words."""
    return _pattern(_JWT).findall(text)


def has_runs(text: str) -> bool:
    """Whether 15 characters of tokens follow each other: else there is no token, JWT or bearer. 1 µs per kB."""
    return _LONG in text.encode("latin-1", "replace").translate(_WIDE_RUNS)


def token_spans(text: str) -> Iterator[tuple[int, int]]:
    """Spans of tokens, without JWTs and plain words (`npm-run-all`). Linear: 1 to 2 µs per kB."""
    characters = text.encode("latin-1", "replace")
    marks = characters.translate(_RUNS)
    start = marks.find(_LONG)
    while start >= 0:
        end = marks.find(b" ", start)
        end = len(text) if end < 0 else end
        if _is_mixed(characters[start:end].translate(None, b"_.-")):
            for match in _pattern().finditer(text, max(0, start - _NUMBER), end):
                if any(map(_is_mixed, _PIECES.findall(match[0]))):
                    yield match.span()
        start = marks.find(_LONG, end)


def _is_mixed(text: str | bytes) -> bool:
    return text.isalnum() and not text.isalpha() and not text.isdigit()


def written_forms(secret: str) -> Iterator[str]:
    """A secret in JSON, Python, URLs, Base64 and hexadecimal."""
    yield from _escaped_forms(secret)
    yield from _wrapped_forms(secret)


def _escaped_forms(secret: str) -> Iterator[str]:
    yield from (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(json.dumps(secret)[1:-1])[1:-1],  # an error within an error
        repr(secret)[1:-1],
        ascii(secret)[1:-1],
        repr(secret.encode("utf-8", "replace"))[2:-1],
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
        secret.replace(" ", "+"),
        secret.encode("unicode_escape").decode(),
    )


def with_lines(secret: str) -> list[str]:
    """The secret and each of its long lines."""
    return [secret, *(line for line in secret.splitlines() if _LINE <= len(line) < len(secret))]


def _wrapped_forms(secret: str) -> Iterator[str]:
    """Hexadecimal, and Base64 at every offset."""
    data = secret.encode("utf-8", "replace")
    if len(data) < _WRAPPED:
        return
    yield from (data.hex(), data.hex().upper())
    for before in range(3):  # bytes of what stands before it that share a group with it
        text = b64encode(bytes(before) + data).decode()
        end = len(text) if (before + len(data)) % 3 == 0 else len(text.rstrip("=")) - 1
        sure = text[(0, 2, 3)[before] : end]  # the rest depends on what stands beside it
        yield from (sure, sure.translate(_URL_SAFE))
