"""Tells secrets from values that everybody may see: by the name of a variable, header or parameter, and by form."""

import re
from typing import Final

_SHORTEST: Final = 6  # characters: shorter values are rarely secret, and masking them would ruin every log
_SHORTEST_NAMED: Final = 4  # of a value whose name says that it is secret
_PLACE_NAMES: Final = frozenset(
    "HOME USER LOGNAME PWD PATH SHELL LANG TMPDIR TEMP TMP USERPROFILE APPDATA LOCALAPPDATA".split()
)
"""Of places and people, which are part of most paths."""
_PUBLIC_NAME: Final = re.compile(
    r"LANG(UAGE)?|LC_[A-Z]+|TZ|TERM|EDITOR|PAGER|NO_COLOR|FORCE_COLOR|DISPLAY|XDG_\w+|no_proxy|NO_PROXY"
    r"|PYTHON[A-Z]+|VIRTUAL_ENV|NODE_(ENV|OPTIONS|PATH)|GO(PATH|ROOT|FLAGS)|JAVA_(HOME|OPTS)|RUST_(LOG|BACKTRACE)|DEBUG"
    r"|(?i:(\w+_)?(log_?level|region|locale|timezone))"
    r"|(?i:accept(-\w+)?|content-(type|language)|user-agent|cache-control|pragma|origin|referer|mcp-protocol-version)"
)
_SECRET_NAME: Final = re.compile(
    r"token(?!s)|passw|passphrase|(?<![a-z])p(wd?|ass|at|in)(?![a-z])|secret|auth(?!or(?!i[sz]))|key|credential"
    r"|signature|(?<![a-z])sig(?![a-z])|dsn|cookie|bearer|jwt|webhook",
    re.I,
)
_SETTING_NAME: Final = re.compile(
    r"(.*[_-])?(file|path|dir|sock|type|method|mode|level|name|id|url|uri|host|port|timeout|limit|ttl|size|count)", re.I
)
"""Names of settings around a secret (`TOKEN_FILE`, `AUTH_MODE`); their values are judged as those of other names."""
_FLAG: Final = re.compile(r"true|false|yes|no|on|off|none|null|auto|default|enabled|disabled", re.I)
_WORD: Final = r"(?:[a-z]{1,24}|[A-Z][a-z]{0,23}|[A-Z]{1,15})"
_LABEL: Final = r"[a-z]{1,24}(?:-[a-z]{1,24})*(?:-?\d{1,3})?"
_OPTION: Final = r"--?[A-Za-z]+(?:-[a-z]+)*(?:=(?:[a-z]+|\d+))?"
_PATH: Final = re.compile(r"((?:[a-z][a-z0-9+]*://)?[/\\]|~|\.{1,2}[/\\]|[A-Za-z]:[/\\])[^+=?]*")
_ORDINARY: Final = re.compile(
    rf"{_WORD}(,{_WORD})*"
    rf"|(localhost|(\*\.)?{_LABEL}(\.{_LABEL}){{1,4}})(:\d{{1,5}})?"  # a host
    r"|v?[+-]?\d[\d.,:_/+T-]*[A-Za-z%]{0,3}"  # a number, a version, an address, a time, 30s
    rf"|{_OPTION}( {_OPTION})*"
    r"|[a-z]+://[a-z0-9.-]+(:\d+)?(/[a-z]{1,12}|/v\d{1,2}){0,2}/?"  # a URL with a host and plain words
)


def is_public_name(name: str) -> bool:
    """Whether everybody may know the value of that name, whatever it is."""
    return name in _PLACE_NAMES or _PUBLIC_NAME.fullmatch(name) is not None


def is_secret_name(name: str) -> bool:
    """Whether the name says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None and _SETTING_NAME.fullmatch(name) is None


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a name that is not public is one."""
    if is_secret_name(name):
        return len(value) >= _SHORTEST_NAMED and not _FLAG.fullmatch(value)
    return len(value) >= _SHORTEST and not _ORDINARY.fullmatch(value) and not is_path(value)


def is_path(value: str) -> bool:
    """Whether the value is a path, or a list of paths."""
    return _PATH.fullmatch(value) is not None


def is_taken_for_secret(name: str, value: str) -> bool:
    """Whether the value of an environment variable that the file refers to is one: all but flags, paths, public names.

    A word is one: a user who refers to a variable for it usually has a reason.
    """
    if is_public_name(name) or len(value) < _SHORTEST:
        return False
    return is_secret_name(name) or not (_FLAG.fullmatch(value) or is_path(value))
