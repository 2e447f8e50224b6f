"""Finds the secret texts of the settings by their place, their name and their form, though the file itself holds them.

A value under `env`, `headers` or `bearer` is secret unless its name is public, or it is a word, a number, a path or a
flag. A secret within a longer text (user info and query of a URL, `Password=…`, JSON) is one by itself, too: a server
may print it alone.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, unquote_plus

from mcp_hub.config.load.interpolate import PUBLIC
from mcp_hub.config.schema.settings import Settings

_SHORTEST: Final = 6  # characters: shorter values are rarely secret, and masking them would ruin every log
_SHORTEST_NAMED: Final = 4  # of a value whose name says that it is secret
_PUBLIC_NAME: Final = re.compile(
    r"LANG(UAGE)?|LC_[A-Z]+|TZ|TERM|EDITOR|PAGER|NO_COLOR|FORCE_COLOR|DISPLAY|XDG_\w+|no_proxy|NO_PROXY"
    r"|PYTHON[A-Z]+|VIRTUAL_ENV|NODE_(ENV|OPTIONS|PATH)|GO(PATH|ROOT|FLAGS)|JAVA_(HOME|OPTS)|RUST_(LOG|BACKTRACE)|DEBUG"
    r"|(?i:(\w+_)?(log_?level|region|locale|timezone))"
    r"|(?i:accept(-\w+)?|content-(type|language)|user-agent|cache-control|pragma|origin|referer|mcp-protocol-version)"
)
_SECRET_NAME: Final = re.compile(
    r"token(?!s)|passw|passphrase|(?<![a-z])p(wd|ass|at|in)(?![a-z])|secret|auth(?!or(?!i[sz]))|key|credential|signature"
    r"|(?<![a-z])sig(?![a-z])|dsn|cookie|bearer|jwt|webhook",
    re.I,
)
_SETTING_NAME: Final = re.compile(
    r"(.*[_-])?(file|path|dir|sock|type|method|mode|level|name|id|url|uri|host|port|timeout|limit|ttl|size|count)", re.I
)
"""Names of settings around a secret (`TOKEN_FILE`, `AUTH_MODE`); their values are judged as those of other names."""
_FLAG: Final = re.compile(r"true|false|yes|no|on|off|none|null|auto|default|enabled|disabled", re.I)
_WORD: Final = r"(?:[a-z]{1,24}|[A-Z][a-z]{0,23}|[A-Z]{1,15})"
_PATH: Final = re.compile(r"(file://)?([/\\]|~|\.{1,2}[/\\]|[A-Za-z]:[/\\])[^+=?]*")
_ORDINARY: Final = re.compile(
    rf"{_WORD}(,{_WORD})*"
    r"|[+-]?\d[\d.,:_/+-]*[A-Za-z%]{0,3}"  # a number, a version, an address, 30s
    r"|--?[A-Za-z]+(-[a-z]+)*(=([a-z]+|\d+))?"  # a flag
    r"|[a-z]+://[a-z0-9.-]+(:\d+)?/?"  # a URL that names a host only
)
_USER: Final = re.compile(r"//([^\s/?#:@]+)@")
_USER_INFO: Final = re.compile(r"(?:^|//)([^\s/?#:@]*):(?:([^\s/?#]*)|(?!\d*[/?#])(\S{0,256}))@(?!sha256:)")
_QUERY: Final = re.compile(r"[?&]([\w.~%-]+)=([^&#\s]+)")
_PAIR: Final = re.compile(
    r"(?<![\w.-])([\w.-]++)[\"']?\s{0,9}[=:]\s{0,9}[\"']?((?:(?:basic|bearer|token)\s+)?)([^\s&;\"']+)", re.I
)
_CREDENTIALS: Final = re.compile(r"^(basic|bearer|token)\s+(\S+)", re.I)
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:(?:sk|gh[opsu]|github_pat|glpat|xox[a-z]|ntn|hf|npm|pypi|lin_api)[_-][\w-]{16,}"
    r"|(?:AKIA|ASIA|AIza)[\w-]{16,}|(?=[A-Z\d]*[a-z])(?=[a-z\d]*[A-Z])(?=[A-Za-z]*\d)[A-Za-z\d]{24,}(?![\w-]))"
)
"""Texts that have the form of a provider's token, or mix capitals, small letters and digits for a long time."""


def secret_texts(settings: Settings, from_outside: Iterable[str] = ()) -> set[str]:
    """Tokens, keys and credentials, what is not public of `env`, headers and arguments, and the parts of all of them.

    `from_outside` are the texts that `${…}` took from elsewhere; only their parts are looked for.
    """
    hub, servers = settings.hub, settings.servers.values()
    issuers = [] if hub.http.oauth is None else hub.http.oauth.issuers
    keys = [*(server.bearer for server in servers), *(issuer.shared_key for issuer in issuers)]
    found = {token.token.get_secret_value() for token in hub.tokens}
    found |= {key.get_secret_value() for key in keys if key is not None}
    for server in servers:
        found |= server.oauth.secrets() if server.oauth else set()
        for texts in secret_arguments(server.args).values():
            found |= texts
    sent = [hub.telemetry.headers, *(server.headers for server in servers)]
    named = [(name, value.get_secret_value()) for headers in sent for name, value in headers.items()]
    named += (pair for server in servers for pair in server.env.items())
    for name, value in named:
        found.update(_value(name, value))
    for url in (*(server.url for server in servers), *(issuer.jwks_url for issuer in issuers), *from_outside):
        found.update(_parts(url or ""))
    return found


def secret_arguments(args: list[str]) -> dict[int, set[str]]:
    """The secrets in arguments of a command: `--token X`, `KEY=X`, credentials in URLs, and what looks like a token."""
    found = {index: {*_parts(text), *_TOKEN.findall(text)} for index, text in enumerate(args)}
    for index, (flag, text) in enumerate(zip(args, args[1:], strict=False), start=1):
        if flag.startswith("-") and "=" not in flag and not text.startswith("-"):
            found[index].update(_named(flag, text))
    return {index: texts for index, texts in found.items() if texts}


def _value(name: str, value: str) -> Iterator[str]:
    """The value of that name, unless it is public, and the secrets within it."""
    if not _is_public(name):
        if _is_secret(name, value):
            yield value
        yield from _parts(value)


def _is_public(name: str) -> bool:
    return name in PUBLIC or _PUBLIC_NAME.fullmatch(name) is not None


def _is_secret(name: str, value: str) -> bool:
    """Whether the value of a name that is not public is one."""
    if _is_named_so(name):
        return len(value) >= _SHORTEST_NAMED and not _FLAG.fullmatch(value)
    return len(value) >= _SHORTEST and not _ORDINARY.fullmatch(value) and not _PATH.fullmatch(value)


def _is_named_so(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _SETTING_NAME.fullmatch(name) is None


def _named(name: str, value: str) -> Iterator[str]:
    """The value if its name says that it is secret, but not the path of a file with it."""
    if _is_named_so(name) and _is_secret(name, value) and not _PATH.fullmatch(value):
        yield value


def _parts(text: str) -> Iterator[str]:
    """The secrets within a text: credentials and query of a URL, `Name=value` of a connection, JSON, Basic, Bearer."""
    for name, value in _members(text):
        yield from _value(name, value)
    for user, *passwords in _USER_INFO.findall(text):
        yield from (*_of_url("user", user), *_of_url("password", "".join(passwords)))
    for user in _USER.findall(text):
        yield from _of_url("user", user)
    for name, value in _QUERY.findall(text):
        yield from _of_url(name, value)
    for name, scheme, value in _PAIR.findall(text):
        yield from (*_named(name, value), *_credentials(scheme, value))
    for scheme, value in _CREDENTIALS.findall(text):
        yield from _credentials(scheme, value)


def _of_url(name: str, value: str) -> Iterator[str]:
    """A part of a URL, as it is written and as it is meant."""
    for text in {value, unquote(value), unquote_plus(value)}:
        if not _is_public(name) and _is_secret(name, text):
            yield text


def _credentials(scheme: str, value: str) -> Iterator[str]:
    """The credentials behind the name of a scheme of authorization; of Basic also the password in them."""
    if scheme:
        yield from _named("password", value)
    if scheme.strip().lower() == "basic":
        try:
            yield from _named("password", b64decode(value).decode().partition(":")[2])
        except ValueError:
            return


def _members(text: str) -> Iterator[tuple[str, str]]:
    """The texts in a JSON value with the names of their members."""
    if text.lstrip()[:1] not in ("{", "["):
        return
    try:
        waiting = [("", json.loads(text))]
    except (ValueError, RecursionError):
        return
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict):
            waiting += value.items()
        elif isinstance(value, list):
            waiting += ((name, item) for item in value)
