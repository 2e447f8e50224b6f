"""Finds secrets in settings by place, name and form, even those in the file itself.

A secret within a value counts alone, too: a token, a URL's credentials, `Password=…`, JSON.
"""

import json
import os
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, unquote_plus, urlsplit

from mcp_hub.config.load.public import (
    is_identifier,
    is_path,
    is_public_name,
    random_texts,
    says_secret,
    secret_forms,
)
from mcp_hub.config.schema.servers import COMMAND_OUTPUT, ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.globs import late

_SHORTEST: Final = 4
"""Characters of a secret within a text."""
_USER: Final = late(r"//([^\s/?#:@]+)@")
_USER_INFO: Final = late(
    r"(?:^(?!npm:|jsr:|mailto:|sip:|acct:)|//)([^\s/?#:@]*):(?:([^\s/?#]*)|(?!\d*[/?#])(\S{0,256}))@(?!sha256:)"
)
_QUERY: Final = late(r"[?&]([\w.~%-]+)=([^&#\s]+)")
_PAIR: Final = late(
    r"(?<![\w.-])([\w.-]++)[\"']?\s{0,9}[=:]\s{0,9}[\"']?((?:(?:basic|bearer|token)\s+)?)([^\s&;\"']+)", re.I
)
_SETTINGS: Final = late(r"(?:^|;)\s{0,9}(\w[\w .-]{0,64}?)\s{0,9}=\s{0,9}([^;]+)")
"""A connection string's settings; a password may have blanks and signs."""
_CREDENTIALS: Final = late(r"^(basic|bearer|token)\s+(\S+)", re.I)
_HEX_USER: Final = late(r"(?=.*\d)[0-9a-f]{8,}")
_ASSIGNED: Final = late(r"(?:--?)?([A-Za-z_][\w.-]*)=(.+)", re.S)
_ATTACHED: Final = late(r"(-[pPuUeH])(?!-)(.+)", re.S)
"""A short flag with its value in one argument: `mysql -uroot -pX`."""
_OPTION: Final = late(r"--?[A-Za-z][A-Za-z0-9-]*(?:=.*)?|--?", re.S)
_USER_FLAG: Final = late(r"-[uU](?![a-z]+-)|--(?:user|username|login)(?:=|$)")
_NUMBERS: Final = late(r"\d{1,5}|[\d.]*:[\d.:]+(?:/\w+)?")
"""A port, a port map, or user and group numbers."""
_LOGON: Final = late(r"^[\w$#]+/([^\s/@]+)@(?://[\w.-]+|[\w.-]+:\d+/)")
"""A connection string of Oracle: `user/password@host:port/service`."""
_QUERY_SECRETS: Final = frozenset(("code", "k", "appid"))
_REFERENCE: Final = late(r"\$\{[^{}]*\}")
_NOTHING: Final = late(r"(?!)")


def secret_texts(settings: Settings, from_outside: Iterable[str] = ()) -> set[str]:
    """All secrets of the settings, and parts of `from_outside`, the values of `${…}`."""
    hub, servers = settings.hub, settings.servers.values()
    issuers = [] if hub.http.oauth is None else hub.http.oauth.issuers
    texts = {token.token.get_secret_value() for token in hub.tokens}
    texts |= {issuer.shared_key.get_secret_value() for issuer in issuers if issuer.shared_key is not None}
    texts |= hub.store.secrets() | set(hub.accounts.keys())
    if (login := hub.http.dashboard.login) is not None and login.client_secret is not None:
        texts.add(login.client_secret.get_secret_value())
    sent = [*hub.telemetry.headers.items(), *(() if hub.ask_webhook is None else hub.ask_webhook.headers.items())]
    for name, value in sent:
        texts.update(_value(name, value.get_secret_value()))
    if hub.ask_webhook is not None:  # its path is all that many receivers ask for
        to = hub.ask_webhook.url.get_secret_value()
        path = urlsplit(to).path.rpartition("/")[2]
        texts |= {hub.ask_webhook.secret.get_secret_value(), *_parts(to), *([path] if len(path) >= 16 else [])}
    for server in servers:
        texts |= secrets_of_server(server)
    for url in (*(issuer.jwks_url for issuer in issuers), *from_outside):
        texts.update(_parts(url or ""))
    return texts - {""}


def secrets_of_server(server: ServerSettings) -> set[str]:
    """A server's secrets; `${…}` in a disabled one does not count."""
    literal = _REFERENCE if not server.enabled else _NOTHING
    secrets = server.oauth.secrets() if server.oauth else set()
    secrets |= {literal.sub("", server.bearer.get_secret_value())} if server.bearer else set()
    for texts in secret_arguments([literal.sub("", arg) for arg in server.args]).values():
        secrets |= texts
    sent = [(name, value.get_secret_value()) for name, value in server.headers.items()]
    for name, value in (*sent, *server.env.items()):
        secrets.update(_value(name, literal.sub("", value)))
    return (secrets | set(_parts(literal.sub("", server.url or "")))) - {COMMAND_OUTPUT}


def secret_arguments(args: list[str]) -> dict[int, set[str]]:
    """Secrets by argument index: `--token X`, `KEY=X`, URL credentials, tokens."""
    secrets = {index: {*_parts(text), *random_texts(text)} for index, text in enumerate(args)}
    has_user = False
    for index, text in enumerate(args):
        flag = args[index - 1] if index else ""
        if joined := _ASSIGNED.fullmatch(text):
            secrets[index].update(_of_flag(*joined.groups(), has_user=has_user))
        elif joined := _ATTACHED.fullmatch(text):
            secrets[index].update(_of_flag(*joined.groups(), has_user=has_user))
        if flag.startswith("-") and "=" not in flag and not _OPTION.fullmatch(text):
            secrets[index].update(_of_flag(flag, text, has_user=has_user))
        has_user = has_user or _USER_FLAG.match(text) is not None
    return {index: texts for index, texts in secrets.items() if texts}


def _of_flag(flag: str, text: str, *, has_user: bool) -> Iterator[str]:
    flag = flag.lstrip("-") if len(flag) > 2 else flag
    if flag in ("-H", "header", "headers"):
        name, _, value = text.partition(":")
        yield from _value(name.strip(), value.strip())
    elif flag in ("-u", "-U", "user", "username", "login"):
        yield from _named("password", "" if _NUMBERS.fullmatch(text) else text.partition(":")[2])
    elif flag in ("-p", "-P"):
        yield from _named("password", text if has_user and not _NUMBERS.fullmatch(text) else "")
    elif (inner := _ASSIGNED.fullmatch(text)) and flag in ("-e", "env"):
        yield from _value(*inner.groups())
    else:
        yield from _named(flag, text)


def is_secret(name: str, value: str, *, is_from_outside: bool = False) -> bool:
    """Whether a variable's or header's value is or holds a secret. `${…}` stands for a value elsewhere.

    `is_from_outside`: from the environment, where a value that people cannot read is secret, too.
    """
    if is_from_outside:
        return any(_value(name, value)) or says_secret(name, value, is_from_outside=True)
    return "${" not in value and any(_value(name, value))


def secrets_of_url(url: str) -> set[str]:
    return {text for text in _parts(url) if text in url and "${" not in text}


def _value(name: str, value: str) -> Iterator[str]:
    if is_public_name(name):
        return
    within = {*_parts(value), *(() if is_identifier(name) else random_texts(value))}
    if within or says_secret(name, value):
        yield value
    yield from within


def _named(name: str, value: str) -> Iterator[str]:
    if len(value) >= _SHORTEST and says_secret(name, value) and not is_path(value):
        yield value


def _parts(text: str) -> Iterator[str]:
    """Tokens, URL credentials and query, `Name=value`, JSON, Basic, Bearer."""
    yield from secret_forms(text)
    for name, value in _members(text):
        yield from _value(name, value)
    for _, *passwords in _USER_INFO.findall(text):
        yield from _as_written("".join(passwords))
    for user in _USER.findall(text):
        if says_secret("session", user) or _HEX_USER.fullmatch(user):
            yield from _as_written(user)
    for password in _LOGON.findall(text):
        yield from _as_written(password)
    for name, value in _QUERY.findall(text):
        yield from _of_url(name, value)
    for name, scheme, value in _PAIR.findall(text):
        yield from (*_named(name, value), *_credentials(scheme, value))
    for name, value in _SETTINGS.findall(text) if ";" in text else ():
        yield from _named(name.strip(), value)
    for scheme, value in _CREDENTIALS.findall(text):
        yield from _credentials(scheme, value)


def _of_url(name: str, value: str) -> Iterator[str]:
    if len(value) >= _SHORTEST and says_secret("key" if name.lower() in _QUERY_SECRETS else name, unquote(value)):
        yield from _as_written(value)


def _as_written(value: str) -> Iterator[str]:
    yield from {value, unquote(value), unquote_plus(value)} - {""}


def _credentials(scheme: str, value: str) -> Iterator[str]:
    if scheme:
        yield from _named("password", value)
    if scheme.strip().lower() == "basic":
        try:
            yield from _named("password", b64decode(value).decode().partition(":")[2])
        except ValueError:
            return


def _members(text: str) -> Iterator[tuple[str, str]]:
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


def target_of(command: object, url: object) -> str:
    """The receiver of values: program, or URL's origin."""
    if not isinstance(url, str):
        return f"the command {os.path.basename(str(command).rstrip('/'))}"
    parts = urlsplit(url) if "[" not in url else None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts is not None else url
