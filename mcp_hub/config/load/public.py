"""Tells secrets from public values, by name and form.

A name says secret (`API_KEY`), maybe (`SESSION`) or nothing (`OWNER`); "maybe" needs a value that people cannot read.
Provider tokens, private keys and long random texts are secret under any name.
"""

import re
from collections.abc import Iterator
from typing import Final

from mcp_hub.globs import late
from mcp_hub.secret_forms import tokens_in

_SHORTEST: Final = 6
"""Characters; a shorter value is secret only by name."""
_SECRET, _LIKELY, _NEUTRAL, _IDENTIFIER, _PUBLIC = 2, 1, 0, -1, -2
"""Meanings of a name. Under an identifier and a public name a long text without a pattern is not a secret."""
_PLACE_NAMES: Final = frozenset(
    "HOME USER LOGNAME PWD OLDPWD PATH SHELL LANG TMPDIR TEMP TMP USERPROFILE APPDATA LOCALAPPDATA".split()
)
"""Names of places and people, part of most paths."""
_PUBLIC_NAME: Final = late(
    r"LANG(UAGE)?|LC_[A-Z]+|TZ|TERM|EDITOR|PAGER|NO_COLOR|FORCE_COLOR|DISPLAY|XDG_\w+|no_proxy|NO_PROXY"
    r"|PYTHON[A-Z]+|VIRTUAL_ENV|NODE_(ENV|OPTIONS|PATH)|GO(PATH|ROOT|FLAGS)|JAVA_(HOME|OPTS)|RUST_(LOG|BACKTRACE)|DEBUG"
    r"|(?i:(\w+_)?(log_?level|region|locale|timezone))"
    r"|(?i:accept(-\w+)?|content-(type|language)|user-agent|cache-control|pragma|origin|referer|mcp-protocol-version)"
)
_WORDS: Final = late(r"AUTH0|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_WORD: Final = late(
    r".*(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSWORT|PASSPHRASE|PASSCODE|CREDENTIAL|COOKIE)S?|CREDS?|.*AUTH"
    r"|(?!.*(?:MON|TUR|HOT|DON|JOC|HOC|PUB|PUBLIC|PRIMARY|FOREIGN)KEY).*KEYS?|(?!BY|COM|TRES|SUR|ENCOM).*PASS|.*PWD|PSWD"
    r"|PW|PSK|PINS?|PATS?|OTP|TOTP|DSNS?|BEARER|JWTS?|AUTHORI[SZ]ATION|AUTHENTICATION|SIG|SAS|SALT|PEPPER|MNEMONIC|SEED"
    r"|HMAC|CSRF|XSRF|UNSEAL|ASSERTION"
)
_SECRET_NAME: Final = late(
    r"(.*_)?(ACCESS_?KEY_?ID|SECRET_ID|API_HASH|LI_AT|(RECOVERY|SEED|BACKUP)_(PHRASE|WORDS|CODES?)"
    r"|(ACCESS|SECURITY|UNLOCK|ALARM|VERIFICATION|PAIRING)_CODE)"
)
"""Secrets' names whose single words do not say so."""
_LIKELY_WORD: Final = late(
    r"SESSION(ID)?S?|SID|LOGINS?|(WEB)?HOOKS?|RPC|BASIC|SIGNATURE|REFRESH|LICEN[SC]E|CERT|PFX|KEYPAIR|ENCRYPTION|SIGNING"
    r"|NONCE|CRUMB|INVITE"
)
_SETTING: Final = late(
    r".*_(FILE(NAME)?|PATH|DIR(ECTORY)?|FOLDER|SOCK(ET)?|TYPE|METHOD|MODE|LEVEL|NAME|URL|URI|HOST|PORT|TIMEOUT|LIMIT|TTL"
    r"|SIZE|COUNT|HEADER|PREFIX|SUFFIX|LEN(GTH)?|EXPIR(Y|ES?|ATION)(_(IN|AT|AFTER))?|LIFETIME|S|SEC(OND)?S?|MS|MINUTES"
    r"|HOURS|DAYS|AGE|ENABLED|DISABLED|REQUIRED|ENDPOINT|DOMAIN|REALM|SCOPE|ISSUER|AUDIENCE|ALG(ORITHM)?|PROVIDER"
    r"|STRATEGY|SCHEME|FORMAT|VERSION|REGION|LOCATION|PROFILE|ENCODING|FIELD|COLUMN|PARAM(ETER)?|ENV|VAR(IABLE)?|SOURCE"
    r"|STORE|STORAGE|BACKEND|MANAGER|ROTATION|POLICY|BUCKET|TABLE|LABEL|USER(NAME)?|EMAIL|CALLBACK|REDIRECT|SERVER"
    r"|SERVICE|BUDGET|WINDOW|THRESHOLD|INTERVAL|DATE|TIME|RETRIES|CONTRACT|ADDRESS|SYMBOL|DECIMALS|ARN|FLOW|THROUGH"
    r"|HELPER|TENANT)S?"
)
"""Names of settings around a secret (`TOKEN_FILE`, `AUTH_MODE`)."""
_PLAIN_NAME: Final = late(
    r"(.*_)?((PRIMARY|PUBLIC|PUBLISHABLE|FOREIGN|SORT|PARTITION|CACHE|PROJECT|SPACE|ISSUE|BOARD|OBJECT|ROW|INDEX|GROUP"
    r"|SITE|ROUTING|TRANSLATION|LANGUAGE|LOOKUP|UNIQUE|JOIN|FEATURE|METRIC|TAG|SHORTCUT)_KEYS?"
    r"|(MAX|MIN|NUM|TOTAL|INPUT|OUTPUT|CONTEXT|PROMPT|COMPLETION|THINKING|EOS|BOS|PAD|UNK|SEP|CLS|MASK|STOP)_TOKENS?)"
)
"""Names of keys and tokens that open nothing."""
_IDENTIFIER_NAME: Final = late(
    r"(.*_)?(IDS?|UUID|GUID|(ACCOUNT|SERVICE|WORKSPACE|PHONE)_SID|ADDRESS|FINGERPRINT|CHECKSUM|HASH|DIGEST|ARN|REF)"
)
_FLAG: Final = late(r"true|false|yes|no|on|off|none|null|auto|default|enabled|disabled|required|optional", re.I)
_SCHEME: Final = late(
    r"anonymous|basic|bearer|digest|ntlm|kerberos|ldap|saml|oidc|oauth2?|jwt|token|api[-_ ]?key|password|pat|iam|adc"
    r"|sso|github|gitlab|google|azure|aws|okta|auth0|cli|local|env|interactive|browser",
    re.I,
)
"""Ways to log in, as values of `AUTH`."""
_SAYS_HOW: Final = late(r"auth(ori[sz]ation|entication)?$", re.I)
_PATH: Final = late(
    r"(?:(?:[a-z][a-z0-9+]*://)?/|~[/\\]|\.{1,2}[/\\]|[A-Za-z]:[/\\])[^+=?\n]*"
    r"|[\w.-]+(?:/[\w .-]+)*\.(?:json5?|ya?ml|toml|ini|env|pem|key|crt|cer|p12|pfx|jks|txt|db|sqlite3?|xml"
    r"|csv|log|conf|cfg)",
    re.I,
)
_URL: Final = late(r"[a-z][a-z0-9+.-]*://\S*", re.I)
_EMAIL: Final = late(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_HEX: Final = late(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")
_PIECES: Final = late(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_SIGNS: Final = frozenset("!#$%^&*?")
"""Signs within passwords."""
_PRIVATE_KEY: Final = late(r"-----BEGIN [A-Z0-9 ]*(?:PRIVATE|SECRET|SEED|JWT)[A-Z0-9 ]*-----.*", re.S)
_APP_PASSWORD: Final = late(r"[a-z]{4}(?: [a-z]{4}){3}")
_HOOK: Final = late(
    r"://(?:[\w-]+\.)*(?:hooks?|webhooks?|maker)\.[\w.-]+(/[^\s?#]*[^\s?#/])|/(?:web)?hooks?[\w-]*(/[^\s?#]{6,})", re.I
)
"""A URL path that lets anybody post."""
_PLAIN_FORMS: Final = late(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|sha\d{1,3}[:-][\w+/=]+|\b(?:ssh|ecdsa)-\S{1,40} \S+|age1\w+"
    rf"|{_EMAIL.pattern}|\d{{1,20}}-\w{{1,64}}\.apps\.googleusercontent\.com|\b0[0-7][0-9A-HJKMNP-TV-Z]{{24}}\b"
    r"|\bpk[_-](?:lf|live|test)[_-]\S+"
    r"|-----BEGIN (?:CERTIFICATE|PUBLIC KEY)-----.*|/(?:d|file|design|folders)/[\w-]{20,}|://[^\s/?#]+",
    re.S | re.I,
)
"""UUIDs, hashes, public keys, addresses, hosts and documents' numbers."""
_ITEMS: Final = late(r"[^\s,;\"'`()\[\]{}<>|&?=:]+=*")


def is_public_name(name: str) -> bool:
    """Whether any value of that name is public."""
    return name in _PLACE_NAMES or _PUBLIC_NAME.fullmatch(name) is not None


def says_secret(name: str, value: str, *, is_from_outside: bool = False) -> bool:
    """Whether the name makes this value a secret.

    `is_from_outside`: from the environment, where a value that people cannot read is secret under a neutral name, too.
    """
    meaning = _meaning(name)
    if is_from_outside and meaning == _NEUTRAL:
        meaning = _LIKELY
    if meaning < _LIKELY or _FLAG.fullmatch(value):
        return False
    if meaning == _LIKELY:
        return len(value) >= _SHORTEST and not _is_readable(value) or _is_pair(name, value)
    return value != "" and not _is_setting(name, value)


def is_identifier(name: str) -> bool:
    """Whether it names an id, address or hash, where long random texts are normal."""
    return _meaning(name) <= _IDENTIFIER


def is_path(value: str) -> bool:
    return _PATH.fullmatch(value) is not None and not any(map(_is_random, re.split(r"[/\\]", value)))


def secret_forms(text: str) -> Iterator[str]:
    """Tokens, private keys and secret URL paths within a text."""
    yield from tokens_in(text)
    yield from _PRIVATE_KEY.findall(text)
    yield from (path for match in _HOOK.findall(text) for path in match[:1] + tuple(filter(_is_key, match[1:])) if path)
    if _APP_PASSWORD.fullmatch(text):
        yield text


def random_texts(text: str) -> Iterator[str]:
    """The long random texts within a text, without hashes, UUIDs and public keys."""
    has_url = "://" in text
    for item in _ITEMS.findall(_PLAIN_FORMS.sub(" ", text)):
        is_place = has_url or item.startswith(("/", "~", "."))
        yield from filter(_is_random, re.split(r"[/\\]", item) if is_place else [item])


def _meaning(name: str) -> int:
    if is_public_name(name):
        return _PUBLIC
    words = [word.upper() for word in _WORDS.findall(name.replace("OAuth", "Oauth"))]
    joined = "_".join(words)
    if _SECRET_NAME.fullmatch(joined):
        return _SECRET
    says_secret = any(map(_SECRET_WORD.fullmatch, words))
    is_identifier = _IDENTIFIER_NAME.fullmatch(joined) is not None and not (says_secret and words[-1] == "HASH")
    if any(map(_LIKELY_WORD.fullmatch, words)) and not says_secret and not joined.endswith("_SID"):
        return _LIKELY
    if is_identifier:
        return _IDENTIFIER
    if not says_secret:
        return _LIKELY if words[-1:] == ["API"] else _NEUTRAL
    if _PLAIN_NAME.fullmatch(joined):
        return _NEUTRAL
    return _LIKELY if _SETTING.fullmatch(joined) else _SECRET


def _is_setting(name: str, value: str) -> bool:
    """Counts, paths, URLs and login methods are never secret."""
    if value.isdecimal():
        return len(value) < 4 or "TOKENS" in name.upper()
    if _SAYS_HOW.search(name) and _SCHEME.fullmatch(value):
        return True
    return _is_place(value)


def _is_place(value: str) -> bool:
    if _URL.fullmatch(value):
        return all(map(_is_readable_word, re.findall(r"[^\W_]+", value)))
    return is_path(value) and re.search(r"[^/\\][/\\.]\w|[/\\.]\w+[/\\.]\w", value) is not None


def _is_pair(name: str, value: str) -> bool:
    return re.search(r"login|basic", name, re.I) is not None and re.fullmatch(r"[^\s:/]+:[^\s/]{3,}", value) is not None


def _is_readable(value: str) -> bool:
    if is_path(value) or _EMAIL.fullmatch(value):
        return True
    is_url = _URL.fullmatch(value) is not None
    return (is_url or not _is_password(value)) and all(map(_is_readable_word, re.findall(r"[^\W_]+", value)))


def _is_readable_word(word: str) -> bool:
    if len(word) < _SHORTEST or word.isdecimal() or not word.isascii():
        return True
    is_hex = _HEX.fullmatch(word) is not None and any(map(str.isdecimal, word))
    return len(word) <= 24 and not is_hex and len(word) >= 2.5 * len(_PIECES.findall(word))


def _is_password(text: str) -> bool:
    return (
        not _SIGNS.isdisjoint(text)
        and re.search(r"[0-9]", text) is not None
        and re.search(r"[A-Za-z]", text) is not None
        and re.search(r"[\s/\\.,]", text) is None
    )


def _is_key(path: str) -> bool:
    return not all(map(_is_readable_word, re.findall(r"[^\W_]+", path)))


def _is_random(text: str) -> bool:
    words = re.findall(r"[A-Za-z0-9]+", text)
    if _is_password(text) and len(text) >= 10 and not text.islower() and not text.isupper():
        return True
    if len(text) < 16 or all(map(_HEX.fullmatch, words)):
        return False
    score = 0
    for word in words:
        kinds = [any(map(is_kind, word)) for is_kind in (str.islower, str.isupper, str.isdecimal)]
        ratio = len(word) / max(1, len(_PIECES.findall(word)))
        if len(word) >= 6 and sum(kinds) > 1 and ratio <= (3.4 if all(kinds) else 4) and not _HEX.fullmatch(word):
            score += len(word)
    return score >= 16 and 2 * score >= len(text)
