"""Exported names of tools and prompts: legal, unique, short, independent of the order of servers."""

import re
import unicodedata
from base64 import b32encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.logs import get_logger
from mcp_hub.types import Origin

log = get_logger(__name__)

RESERVED = frozenset(
    {"find_tools", "read_tool", "run_tool", "run_code", "read_result", "hub_calls", "hub_cancel", "hub_events"}
)
MIN_LENGTH = 16  # below this a cut name is little more than its hash
_HASH_LENGTH = 6  # 30 bits: among 10,000 tools only those that also share the rest of the name can meet
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_SERVER: Final = "server"
_NUMBERS: Final = 10**6
_MIN_STEM: Final = 3
"""Letters of a server's name that still say something."""
_STEM_SHARE: Final = 5
"""A server's part takes at most one in this many characters of a name whose tool does not fit."""
_LONGEST_SPELLED: Final = 1024
"""Characters outside of ASCII that are transliterated."""
_WORD = re.compile(r"(?=[_-])|(?<=[a-z0-9])(?=[A-Z])")
_FILLERS: Final = frozenset({"mcp", "server"})
"""Words of a server's name that say nothing about it, and go first."""

# transliteration of letters that Unicode does not take apart into ASCII and a mark: the usual one for passports
_LATIN: Final = {**dict(zip("æœøđðłßþıħŋ", "ae oe o d d l ss th i h n".split(), strict=True)), "ĸ": "k", "ſ": "s"}
_CYRILLIC: Final = dict(
    zip(
        "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґўђѓјљњћќџ",
        (
            "a b v g d e zh z i i k l m n o p r s t u f kh ts ch sh shch - y - e iu ia i i ie g u d g j lj nj c k dz"
        ).split(),
        strict=True,
    )
)
_GREEK: Final = dict(
    zip("αβγδεζηθικλμνξοπρσςτυφχψω", "a v g d e z i th i k l m n x o p r s s t y f ch ps o".split(), strict=True)
)
_LETTERS: Final = {letter: text.strip("-") for table in (_LATIN, _CYRILLIC, _GREEK) for letter, text in table.items()}
_SYLLABLE = re.compile(r"(?:HIRAGANA LETTER|KATAKANA LETTER|HANGUL SYLLABLE)(?: SMALL)? ([A-Z]+)")
"""Unicode names of letters that end in their sound; they never change (Unicode, "Name Stability")."""
_SILENT: Final = frozenset("ーゝゞ")  # they prolong or repeat the sound before them
_MOST_LOGGED: Final = 20  # tools that are named in one line of the log
_MOST_REMOVED: Final = 4096  # names: those of the largest servers, some times over


class Wanted(msgspec.Struct, frozen=True):
    """One tool or prompt that needs a name."""

    server: str
    name: str
    prefix: str | None = None
    always: bool = False
    rename: str | None = None
    yields: bool = False


def assign(
    requests: Iterable[Wanted], *, max_length: int = 48, reserved: frozenset[str] = RESERVED, noun: str = "tool"
) -> dict[Origin, str]:
    """A name for each origin, matching `^[A-Za-z_][A-Za-z0-9_-]*$`; one that cannot be spelled is a numbered `noun`.

    All that want one name get a suffix; only a legal rename beats generated names, and a literal name others of its
    server. Raises: ValueError below `MIN_LENGTH`.
    """
    if max_length < MIN_LENGTH:
        raise ValueError(f"names of at most {max_length} characters: {MIN_LENGTH} is the least")
    by_origin = {(request.server, request.name): request for request in requests}
    renamed = {
        origin: request.rename for origin, request in by_origin.items() if _is_fit(request.rename, max_length, reserved)
    }
    wishers = Counter(renamed.values())
    names = {origin: name for origin, name in renamed.items() if name is not None and wishers[name] == 1}
    unrenamed = {
        origin: _plain(request, reserved, noun) for origin, request in by_origin.items() if origin not in names
    }
    taken = {*reserved, *(name for name in renamed.values() if name is not None)}
    for yields in (False, True):
        group = {origin: plain for origin, plain in unrenamed.items() if by_origin[origin].yields is yields}
        names |= _settle(group, taken, max_length)
        taken.update(names.values())
    return names


def _is_fit(rename: str | None, max_length: int, reserved: frozenset[str]) -> bool:
    if rename is None or len(rename) > max_length or rename in reserved:
        return False
    return _LEGAL.fullmatch(rename) is not None


class _Parts(msgspec.Struct, frozen=True):
    """The parts of server (maybe empty) and tool; `short` is the server's without scope or folder."""

    tool: str
    server: str = ""
    short: str = ""

    @property
    def whole(self) -> str:
        return _headed(f"{self.server}_{self.tool}" if self.server else self.tool)


def _plain(request: Wanted, reserved: frozenset[str], noun: str) -> _Parts:
    if request.rename:
        parts = _Parts(_spelled(request.rename, noun))
    elif not request.prefix or (not request.always and begins_with(request.name, request.prefix)):
        parts = _Parts(_spelled(request.name, noun))
    else:
        parts = _prefixed(request.prefix, _spelled(request.name, noun))
    return _prefixed(request.server, parts.whole) if parts.whole in reserved else parts


def _prefixed(server: str, tool: str) -> _Parts:
    return _Parts(tool, _spelled(server, _SERVER), _spelled(server.rpartition("/")[2], _SERVER))


def begins_with(name: str, prefix: str) -> bool:
    """Whether a name has the prefix, or is it."""
    name, prefix = _headed(_spelled(name, "")).lower(), _headed(_spelled(prefix, _SERVER)).lower()
    return name == prefix or name.startswith((f"{prefix}_", f"{prefix}-"))


def prefix_in(name: str, prefix: str, max_length: int) -> int:
    """The length of this prefix, whole or shortened, in an exported name; else 0."""
    if begins_with(name, prefix):
        return len(_spelled(prefix, _SERVER))
    parts = _prefixed(prefix, "")
    for room in range(len(parts.server) - 1, _MIN_STEM - 1, -1):
        part = _headed(_shortened(parts, room))
        if name.startswith(f"{part}_") and _is_shortened(name, replace(parts, tool=name[len(part) + 1 :]), max_length):
            return len(part)
    return 0


def _is_shortened(name: str, parts: "_Parts", max_length: int) -> bool:
    if _fitting(parts, max_length) == name:
        return True
    hashed = _HASH_LENGTH + 1
    return _cut(replace(parts, tool=parts.tool[:-hashed]), max_length - hashed) == name[:-hashed]


def _headed(text: str) -> str:
    return text if _LEGAL.match(text) else f"_{text}"


@lru_cache(maxsize=4096)
def _spelled(text: str, noun: str) -> str:
    """Legal characters, one for one in ASCII; other scripts are transliterated, remaining letters become a number."""
    if text.isascii():
        return _ILLEGAL.sub("_", text)
    pieces = [_romanized(letter) for letter in unicodedata.normalize("NFKC", text[:_LONGEST_SPELLED])]
    spelled = re.sub(r"_{2,}", "_", "".join("_" if piece is None else piece for piece in pieces)).strip("_")
    if spelled and None not in pieces:
        return spelled
    number = int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest()) % _NUMBERS
    return f"{spelled or noun}_{number:06}"


def _romanized(letter: str) -> str | None:
    """`_` for a border of words, empty for a mark, None for an unknown letter."""
    if letter.isascii():
        return _ILLEGAL.sub("_", letter)
    if letter in _SILENT:
        return ""
    if (base := _LETTERS.get(letter.lower())) is None and (sound := _SYLLABLE.fullmatch(unicodedata.name(letter, ""))):
        base = sound[1].lower()
    if base is not None:
        return base.capitalize() if letter.isupper() else base
    apart = unicodedata.normalize("NFKD", letter)
    if len(apart) > 1 and not unicodedata.combining(apart[0]):
        return _romanized(apart[0])
    match unicodedata.category(letter)[0]:
        case "M":
            return ""
        case "P" | "Z" | "C":
            return "_"
    return None


def _settle(plain: dict[Origin, _Parts], taken: set[str], max_length: int) -> dict[Origin, str]:
    """Everyone proposes at once; those that collide make their next proposal.

    A contested name stays taken, unless all contenders are of one server that calls one of them so.
    """
    attempts = dict.fromkeys(plain, 0)
    names: dict[Origin, str] = {}
    fought: dict[str, set[str]] = {}  # the servers that wanted it
    pending = list(plain)
    while pending:
        for origin in pending:
            names[origin] = _proposal(plain[origin], origin, attempts[origin], max_length)
        wishers = Counter(names.values())
        for (server, _), name in names.items():
            if wishers[name] > 1:
                fought.setdefault(name, set()).add(server)
        pending = [
            (server, key)
            for (server, key), name in names.items()
            if name in taken or (name in fought and not (key == name and fought[name] == {server}))
        ]
        for origin in pending:
            attempts[origin] += 1
    taken.update(fought)
    return names


def _proposal(plain: _Parts, origin: Origin, attempt: int, max_length: int) -> str:
    if attempt == 0 and (fitting := _fitting(plain, max_length)) is not None:
        return fitting
    # a name that was cut has its hash from the start, so its first two proposals are the same
    salt = () if attempt <= 1 else (str(attempt),)
    text = "\0".join((*origin, *salt)).encode(errors="surrogatepass")
    suffix = b32encode(sha256(text).digest()).decode().lower()[:_HASH_LENGTH]
    return f"{_cut(plain, max_length - _HASH_LENGTH - 1)}_{suffix}"


def _fitting(plain: _Parts, room: int) -> str | None:
    if len(whole := plain.whole) <= room:
        return whole
    part = _shortened(plain, room - len(plain.tool) - 1)
    return shorter if len(shorter := _headed(f"{part}_{plain.tool}" if part else plain.tool)) <= room else None


def _cut(plain: _Parts, room: int) -> str:
    if len(whole := plain.whole) <= room:
        return whole
    part = _shortened(plain, max(room - len(plain.tool) - 1, room // _STEM_SHARE))
    return _headed(f"{part}_{plain.tool}" if part else plain.tool)[:room]


def _shortened(plain: _Parts, room: int) -> str:
    if len(plain.server) <= room:
        return plain.server
    words = _WORD.split(plain.short)
    telling = [word for word in words if word.strip("_-") and word.strip("_-").lower() not in _FILLERS] or words
    forms = [plain.short, *("".join(telling[:count]).strip("_-") for count in range(len(telling), 0, -1))]
    fitting = next((form for form in forms if len(form) <= room), None)
    return fitting or (forms[-1][:room].rstrip("_-") if room >= _MIN_STEM else "")


class ExportedNames:
    """Current and removed names; the oldest above 4,096 are forgotten."""

    def __init__(self) -> None:
        self._current: Mapping[Origin, str] = {}
        self._removed: dict[str, None] = {}

    @property
    def removed(self) -> Collection[str]:
        return self._removed.keys()

    def note(self, names: Mapping[Origin, str], profile: str | None) -> None:
        """Replaces the current names, and logs renamed ones."""
        before, self._current = self._current, names
        changed = [f"{before[origin]} -> {name}" for origin, name in names.items() if before.get(origin, name) != name]
        if changed:
            log.warning("tools_renamed", profile=profile, count=len(changed), tools=changed[:_MOST_LOGGED])
        listed = frozenset(names.values())
        self._removed |= dict.fromkeys(name for name in before.values() if name not in listed)
        for name in [*(name for name in self._removed if name in listed), *[*self._removed][:-_MOST_REMOVED]]:
            self._removed.pop(name, None)
