"""Text in definitions that is hidden from people, or instructs a model. Pure.

No flag: joiners in Indic and Persian words and emoji, direction marks beside right-to-left text, one variation selector
after a symbol, blanks between Braille (Unicode 16, `Default_Ignorable_Code_Point`).
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, Literal

import msgspec

from mcp_hub.globs import late
from mcp_hub.masking import hide_head, hide_part, hide_tail
from mcp_hub.types import RawObject, plural

FlagKind = Literal["hidden", "bidi", "tags", "control", "order", "place", "other_tool", "lookalike"]
MOST_FLAGS: Final = 20  # of one tool; what is beyond is not looked for
_EXCERPT: Final = 40  # characters on either side of what is flagged
_MOST_SHOWN: Final = 400
_MOST_PHRASE: Final = 80  # characters of the phrase that is flagged
_DEEPEST: Final = 100

_INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff"
)
_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAGS = "\U000e0000-\U000e007f"
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff"
_UNSEEN = late(
    rf"(?P<control>\x1b\[[0-9;?]*[ -/]*[@-~]|[{_CONTROL}]+)|(?P<bidi>[{_BIDI}]+)|(?P<tags>[{_TAGS}]+)"
    rf"|(?P<hidden>[{_INVISIBLE}]+)"
)
_SHOWN = late(f"[{_CONTROL}{_BIDI}{_TAGS}{_INVISIBLE}]")
_FLAG_EMOJI = late("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,8}\U000e007f")
"""The flags of regions, such as England's (Unicode TR 51, "Emoji Tag Sequences")."""
_ORDERS = late(
    r"<\s*/?\s*(important|system|secret|hidden|instructions?)\s*>"
    r"|\b(ignore|disregard|forget|override)\s+(all\s+|any\s+|the\s+|your\s+|my\s+)*"
    r"(previous|prior|above|earlier|other|system)\s+(instructions?|prompts?|rules|messages?|directions?)\b"
    r"|\b(do\s+not|don'?t|never|without)\s+(tell|telling|mention|mentioning|inform|informing|notify|notifying|alert|"
    r"alerting|reveal|revealing)\b[^.\n]{0,40}\b(the\s+)?(user|human|person)\b"
    r"|\b(before|prior\s+to|ahead\s+of|after|when(ever)?|each\s+time)\s+(any|every|each|all|anybody|somebody)\b"
    r"(?:[^.\n]|\.(?=\S)){0,80}?\b(must|ha(s|ve)\s+to|(is|are)\s+to\s+be)\b"
    r"|\bwhatever\s+the\s+user\b|\bwhat\s+you\s+(were|have\s+been)\s+\w+\s+(before|earlier)\b|\bfrom\s+(now|then)\s+on\b",
    re.IGNORECASE,
)
_PLACES = late(
    r"~/\.(ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|bashrc|zshrc|profile)\b|\bid_(rsa|ed25519|ecdsa)\b"
    r"|\bauthorized_keys\b|/etc/(passwd|shadow|sudoers)\b|\b(curl|wget)\b[^\n|]{0,200}\|\s*(sudo\s+)?(ba|z|da)?sh\b",
    re.IGNORECASE,
)
"""Files of keys, accounts and shells, and downloads into a shell; none of 611 public tools names one."""
_SELECTORS = frozenset(map(chr, range(0xFE00, 0xFE10))) | frozenset(map(chr, range(0xE0100, 0xE01F0)))
_SYMBOLS = frozenset({"So", "Sm", "Sc", "Sk", "Po", "Pd", "Nd", "Lo"})
_JOINED = frozenset({"Lo", "Mn", "Mc", "So", "Sk", "Sm", "Po"})
_FIRST_JOINING_SCRIPT: Final = "\u0590"  # Latin, Greek and Cyrillic, below it, join nothing
_PADDING: Final = late(rf"[\s{_INVISIBLE}]{{40,}}")
"""Blanks that push text out of sight: more than indented code has."""


class Flag(msgspec.Struct, frozen=True):
    """One finding: `where` is its path, `text` a decoded excerpt.

    What it is about is known once it is placed: `exported` is its name for clients, `tool` a `pin_name`.
    """

    kind: FlagKind
    where: str
    text: str
    why: str
    server: str = ""
    tool: str = ""
    exported: str = ""


def decoded(text: str, limit: int = _MOST_SHOWN) -> str:
    """At most `limit` characters, masked; invisible ones and line breaks are spelled out (`<U+200B>`)."""
    visible = _SHOWN.sub(lambda match: f"<U+{ord(match[0]):04X}>", hide_head(text, limit, "…"))
    return visible.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def texts_of(fields: RawObject) -> Iterator[tuple[str, str]]:
    """Every text with its path, also member names; an undecodable member is one text."""
    for name, raw in fields.items():
        yield name, name
        try:
            yield from _texts(msgspec.json.decode(raw), name, 0)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            # as far as it can be read: msgspec refuses an escape of half a character
            yield name, bytes(raw).decode("utf-8", "replace")


def _texts(value: object, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping) and depth < _DEEPEST:
        for name, member in value.items():
            yield path, name
            yield from _texts(member, f"{path}.{name}", depth + 1)
    elif isinstance(value, list) and depth < _DEEPEST:
        for member in value:
            yield from _texts(member, path, depth + 1)


def hidden_in(where: str, text: str) -> Iterator[Flag]:
    """Invisible parts of a text, one flag per run. Linear time."""
    if text.isascii() and text.isprintable():
        return
    plain = _FLAG_EMOJI.sub(lambda flag: "\U0001f3f4" * len(flag[0]), text) if "\U0001f3f4" in text else text
    is_rtl: bool | None = None
    for run in _UNSEEN.finditer(plain):
        kind = run.lastgroup
        if kind == "bidi" and set(run[0]) <= {"\u200e", "\u200f", "\u061c"}:
            if is_rtl is None:
                is_rtl = any(unicodedata.bidirectional(char) in ("R", "AL") for char in plain if char > "\u0590")
            if is_rtl and len(run[0]) == 1:
                continue
        if kind == "hidden" and _is_needed(plain, run.start(), run[0]):
            continue
        yield _flag(kind, where, text, run.start(), run.end())


def _flag(kind: str | None, where: str, text: str, start: int, end: int) -> Flag:
    run = text[start:end]
    excerpt = decoded(hide_part(text, start - _EXCERPT, end + _EXCERPT))
    match kind:
        case "tags":
            message = "".join(chr(ord(char) - 0xE0000) for char in run if "\U000e0020" <= char <= "\U000e007e")
            why = f"tag characters that nobody sees say {decoded(message)!r}"
            return Flag("tags", where, excerpt, why)
        case "bidi":
            return Flag("bidi", where, excerpt, "characters that change the direction of what is shown")
        case "control":
            noun = "a terminal escape sequence" if run[:1] in "\x1b\x9b" else "control characters"
            return Flag("control", where, excerpt, noun)
        case _:
            return Flag("hidden", where, excerpt, plural(len(run), "invisible character"))


def _is_needed(text: str, at: int, run: str) -> bool:
    before, after = text[at - 1 : at], text[at + len(run) : at + len(run) + 1]
    if not before:
        return False
    if run[0] in _SELECTORS and unicodedata.category(before) in _SYMBOLS:
        run = run[1:]  # what follows one selector may be a joiner: both belong to an emoji
        if not run:
            return True
    if run in ("\u200d", "\u200c") and after:
        return _is_joined(before) and _is_joined(after)
    if run == "\u200b":  # where words are not set apart: Thai, Lao, Tibetan, Myanmar, Khmer
        return _is_unspaced(before) or _is_unspaced(after)
    if run[0] in "\u180b\u180c\u180d\u180e\u180f" and len(run) == 1:
        return "\u1800" <= before <= "\u18af"  # Mongolian
    if run == "\u2800":  # the blank of Braille
        return _is_braille(before) or _is_braille(after)
    return False


def _is_joined(char: str) -> bool:
    return char >= _FIRST_JOINING_SCRIPT and (char in _SELECTORS or unicodedata.category(char) in _JOINED)


def _is_unspaced(char: str) -> bool:
    return "\u0e00" <= char <= "\u0fff" or "\u1000" <= char <= "\u109f" or "\u1780" <= char <= "\u17ff"


def _is_braille(char: str) -> bool:
    return "\u2801" <= char <= "\u28ff"


def orders_in(where: str, text: str) -> Iterator[Flag]:
    """Orders to a model, places of secrets, downloads into a shell."""
    patterns: tuple[tuple[FlagKind, re.Pattern[str], str], ...] = (
        ("order", _ORDERS, "an order to the model"),
        ("place", _PLACES, "a place of secrets or a download into a shell"),
    )
    for kind, pattern, label in patterns:
        for phrase_match in pattern.finditer(text):
            excerpt = decoded(hide_part(text, phrase_match.start() - _EXCERPT, phrase_match.end() + _EXCERPT))
            phrase = hide_part(text, phrase_match.start(), min(phrase_match.end(), phrase_match.start() + _MOST_PHRASE))
            yield Flag(kind, where, excerpt, f"{label}: {decoded(phrase)!r}")


_LOOKALIKES: Final = str.maketrans(
    {
        **dict(zip("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455", "aeopcyxijs", strict=True)),
        **dict(zip("\u0501\u04bb\u051b\u051d\u043a\u043c\u0442\u0432\u043d", "dhqwkmtbh", strict=True)),
        **dict(
            zip("\u03bf\u03b1\u03b5\u03c1\u03c5\u03bd\u03b9\u03c4\u03ba\u03b7\u03c7\u03b3", "oaepuvitknxy", strict=True)
        ),
        **dict(zip("\u0585\u057d\u0578\u0570\u0581\u0131", "ounhgi", strict=True)),
        **dict(zip("01", "ol", strict=True)),
    }
)
"""Small Cyrillic, Greek and Armenian letters that look like Latin ones (Unicode TR 39)."""


def folded(name: str) -> str:
    """The look of a name: equal for names that look alike."""
    wide = unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)
    return re.sub(r"[\W_]+", "", wide).replace("rn", "m")


def flags_of(fields: RawObject) -> list[Flag]:
    """At most `MOST_FLAGS` of one definition; half are reserved for orders and places."""
    hidden: dict[Flag, None] = {}
    orders: dict[Flag, None] = {}
    for where, text in texts_of(fields):
        for flags, looked in ((hidden, hidden_in), (orders, orders_in)):
            if len(flags) < MOST_FLAGS:
                flags.update(dict.fromkeys(islice(looked(where, text), 10 * MOST_FLAGS)))
    few = MOST_FLAGS - min(len(orders), MOST_FLAGS // 2)
    return [*list(hidden)[:few], *orders][:MOST_FLAGS]


def flag_texts(fields: RawObject) -> list[str]:
    return [f"{decoded(flag.where, 200)}: {flag.why}: {flag.text}" for flag in flags_of(fields)]


def squeezed(text: str) -> str:
    """`text` with each run of 40 or more blanks replaced by its count."""
    return _PADDING.sub(_counted, text)


def _counted(run: re.Match[str]) -> str:
    breaks = run[0].count("\n")
    broken = f" with {plural(breaks, 'line break')}" if breaks else ""
    return f"⟨{len(run[0])} blanks{broken}⟩"


def ends_of(text: str, limit: int) -> str:
    """`text`; above `limit` characters its masked ends and the count between."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{hide_head(text, half)}⟨{plural(len(text) - 2 * half, 'more character')}⟩{hide_tail(text, half)}"


def ends_of_members(members: Mapping[str, bytes], limit: int) -> RawObject:
    """Each member as one text of about `limit` characters."""
    return {name: as_json(ends_of(squeezed(_text_of(value)), limit)) for name, value in members.items()}


def as_json(text: str) -> msgspec.Raw:
    """Lone surrogates are spelled out."""
    return msgspec.Raw(msgspec.json.encode(text.encode("utf-8", "backslashreplace").decode()))


def _text_of(value: bytes) -> str:
    try:
        return msgspec.json.decode(value, type=str)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value.decode("utf-8", "replace")
