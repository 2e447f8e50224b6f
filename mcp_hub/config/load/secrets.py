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

from mcp_hub.config.load.public import is_path, is_public_name, is_secret, is_secret_name
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings

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


_REFERENCE: Final = re.compile(r"\$\{[^{}]*\}")
_NOTHING: Final = re.compile(r"(?!)")


def secret_texts(settings: Settings, from_outside: Iterable[str] = ()) -> set[str]:
    """Tokens, keys and credentials, what is not public of `env`, headers and arguments, and the parts of all of them.

    `from_outside` are the texts that `${…}` took from elsewhere; only their parts are looked for.
    """
    hub, servers = settings.hub, settings.servers.values()
    issuers = [] if hub.http.oauth is None else hub.http.oauth.issuers
    found = {token.token.get_secret_value() for token in hub.tokens}
    found |= {issuer.shared_key.get_secret_value() for issuer in issuers if issuer.shared_key is not None}
    found |= hub.store.secrets()
    for name, value in hub.telemetry.headers.items():
        found.update(_value(name, value.get_secret_value()))
    for server in servers:
        found |= _of_server(server)
    for url in (*(issuer.jwks_url for issuer in issuers), *from_outside):
        found.update(_parts(url or ""))
    return found - {""}


def _of_server(server: ServerSettings) -> set[str]:
    """The secrets of a server. In one that is off, `${…}` may stand for values that it does not have: names only."""
    literal = _REFERENCE if not server.enabled else _NOTHING
    found = server.oauth.secrets() if server.oauth else set()
    found |= {literal.sub("", server.bearer.get_secret_value())} if server.bearer else set()
    for texts in secret_arguments([literal.sub("", arg) for arg in server.args]).values():
        found |= texts
    sent = [(name, value.get_secret_value()) for name, value in server.headers.items()]
    for name, value in (*sent, *server.env.items()):
        found.update(_value(name, literal.sub("", value)))
    return found | set(_parts(literal.sub("", server.url or "")))


def secret_arguments(args: list[str]) -> dict[int, set[str]]:
    """The secrets in arguments of a command: `--token X`, `KEY=X`, credentials in URLs, and what looks like a token."""
    found = {index: {*_parts(text), *_TOKEN.findall(text)} for index, text in enumerate(args)}
    for index, (flag, text) in enumerate(zip(args, args[1:], strict=False), start=1):
        if flag.startswith("-") and "=" not in flag and not text.startswith("-"):
            found[index].update(_named(flag, text))
    return {index: texts for index, texts in found.items() if texts}


def is_literal_secret(name: str, value: str) -> bool:
    """Whether the value of that variable or header is a secret, or holds one, and is not a `${…}`."""
    return "${" not in value and any(True for _ in _value(name, value))


def secrets_of_url(url: str) -> set[str]:
    """The secrets that stand in a URL, as they are written there."""
    return {text for text in _parts(url) if text in url and "${" not in text}


def _value(name: str, value: str) -> Iterator[str]:
    """The value of that name, unless it is public, and the secrets within it."""
    if not is_public_name(name):
        if is_secret(name, value):
            yield value
        yield from _parts(value)


def _named(name: str, value: str) -> Iterator[str]:
    """The value if its name says that it is secret, but not the path of a file with it."""
    if is_secret_name(name) and is_secret(name, value) and not is_path(value):
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
        if not is_public_name(name) and is_secret(name, text):
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
