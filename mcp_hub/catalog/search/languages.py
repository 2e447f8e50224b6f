"""Queries in other languages, word for word in English.

`languages.txt` has verbs and nouns of tools; other words stay. A query has the language of most of its words. Chinese,
Japanese and Korean are split at the longest words of the table.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mcp_hub.catalog.search.words import dense_runs, folded, is_bare, is_word, words
from mcp_hub.globs import late

_TABLE: Final = Path(__file__).with_name("languages.txt")
_MAX_TOKENS: Final = 200  # of a query; no one types more
_MAX_WORDS: Final = 5  # of an entry
_LONGEST_ENDING: Final = 5  # letters after a stem, such as `aciones`
_SHORTEST_STEM: Final = 4
_DENSE: Final = frozenset({"zh", "ja", "ko"})  # with no spaces, or none that count
_COMPOUNDING: Final = frozenset({"de", "nl"})
_LINKS: Final = ("", "s", "n", "en", "es", "-")
_OF_A_WORD: Final = 1.5  # of a language's score, for a word of the table; for one that says nothing 1
_OF_ENGLISH: Final = 0.5  # for an English word, many of which are words of other languages, too
_TOKEN = late(r"[^\W\d_]+")
_LETTERS: Final = {ord("ß"): "ss", ord("ł"): "l", ord("ı"): "i", ord("œ"): "oe"}  # Unicode does not take them apart
_UMLAUTS: Final = {ord("ä"): "ae", ord("ö"): "oe", ord("ü"): "ue"}
_TRADITIONAL: Final = str.maketrans(
    "郵檔頁開關創刪發訊電話會議導圖餅線長條組織詞雲繪畫數據庫單儲號錄歷記對較處說讀寫調設計頻評論標籤錯誤報連結網瀏覽擇選輸資夾執運啟動復備還併從複製轉換幾點時間現氣溫帶傘騎車駕鐵遠離機場飛價錢廳館邊尋檢詢誰務約預訂聯絡負責給應請幫這個嗎們為麼裡與樣讓權專項優級問題審碼倉節總蹤監聽譯詳閱視幣匯環變響貼鍵盤滾懸鎖護證續費產業術語讚",
    "邮档页开关创删发讯电话会议导图饼线长条组织词云绘画数据库单储号录历记对较处说读写调设计频评论标签错误报连结网浏览择选输资夹执运启动复备还并从复制转换几点时间现气温带伞骑车驾铁远离机场飞价钱厅馆边寻检询谁务约预订联络负责给应请帮这个吗们为么里与样让权专项优级问题审码仓节总踪监听译详阅视币汇环变响贴键盘滚悬锁护证续费产业术语赞",
)
"""Characters of the table as Taiwan and Hongkong write them, and simplified."""
_KANA, _HANGUL = late("[\u3041-\u30ff]"), late("[\uac00-\ud7af]")
_VALUE = r"[!-~]+"  # also Latin words
_UNREAD = late("[^\\s\u3041-\u309f]{2}")  # not in hiragana, which are endings
# which no other language of the table has: a query with one of them is in English, and the table is not read
_ENGLISH: Final = frozenset(
    "about and are between could does for from get give how into it my need of please show that the there these this "
    "want what when which who with would you your".split()
)


Clause = tuple[str, tuple[str, ...]]
"""A clause in English, and words that count less."""


class _Entry(NamedTuple):
    words: tuple[str, ...]
    meaning: tuple[str, ...]
    besides: tuple[str, ...]


class _Language(msgspec.Struct):
    entries: dict[str, list[_Entry]]
    idle: set[str]
    """Words that say nothing."""

    def starting(self, tokens: Sequence[str]) -> tuple[int, _Entry] | None:
        """The longest entry that begins these tokens, and its length."""
        for entry in self.entries.get(tokens[0][:2], ()):
            size = len(entry.words)
            if size <= len(tokens) and all(map(_is_form, entry.words, tokens)):
                return size, entry
        return None


def in_english(clauses: Sequence[str], indexed: Container[str]) -> list[Clause]:
    """`indexed`: words of the index. English clauses come back unchanged."""
    text = "\n".join(clauses)
    if not _ENGLISH.isdisjoint(text.lower().split()):
        return [(clause, ()) for clause in clauses]
    if dense_runs(text):
        return [_of_dense(clause, indexed) for clause in clauses]
    tokens = [_plain(token) for token in _TOKEN.findall(text)[:_MAX_TOKENS]]
    name = _language(tokens, indexed, is_ascii=text.isascii())
    return [(clause, ()) if name is None else _of_spaced(clause, name, indexed) for clause in clauses]


def _language(tokens: Sequence[str], indexed: Container[str], *, is_ascii: bool) -> str | None:
    if is_ascii and all(_is_indexed(token, indexed) for token in tokens):
        return None
    # languages that share most words with English come behind those that share none
    least = sum(1.0 if is_bare(token) else _OF_ENGLISH for token in tokens if _is_english(token, indexed))
    best, name = least, None
    for language, table in _tables().items():
        score, is_foreign, position = 0.0, False, 0
        while position < len(tokens):
            token, size = tokens[position], 1
            if entry := table.starting(tokens[position : position + _MAX_WORDS]):
                size = entry[0]
                score += size * _OF_A_WORD
                # a word that is the same in English shows no language
                is_foreign = is_foreign or token not in (*entry[1].meaning, *entry[1].besides)
            elif token in table.idle:
                score += 1
            elif _parts(token, language, indexed):
                score += _OF_A_WORD
                is_foreign = is_foreign or not is_word(token)
            position += size
        if is_foreign and score > best:
            best, name = score, language
    return name


def _of_spaced(clause: str, name: str, indexed: Container[str]) -> Clause:
    table = _tables()[name]
    tokens = [_plain(match) for match in _TOKEN.findall(clause)[:_MAX_TOKENS]]
    translated = _Translation(indexed)
    position = 0
    while position < len(tokens):
        token, size = tokens[position], 1
        if entry := table.starting(tokens[position : position + _MAX_WORDS]):
            size = entry[0]
            translated.add(entry[1])
            translated.besides |= {} if size > 1 or token in table.idle else {token: None}
        elif parts := _parts(token, name, indexed):
            for part in parts:
                translated.add(part)
        elif token not in table.idle:
            translated.text[token] = None
        position += size
    return translated.clause(clause)


def _of_dense(clause: str, indexed: Container[str]) -> Clause:
    clause = folded(clause)
    translated = _Translation(indexed)
    for run in dense_runs(clause):
        name = "ko" if _HANGUL.search(run) else "ja" if _KANA.search(clause) else "zh"
        for entry, piece in _split(run, (name, "zh" if name == "ja" else "ja")):
            if entry is not None:
                translated.add(entry)
                translated.besides[piece] = None
            elif name_part := _UNREAD.search(piece):
                translated.text[name_part[0]] = None  # of what the table lacks, one unknown word
    return translated.clause(clause)


def _split(run: str, names: Sequence[str]) -> Iterator[tuple[_Entry | None, str]]:
    tables = [_tables()[name] for name in names]
    simple = run.translate(_TRADITIONAL)
    start = position = 0
    while position < len(run):
        entry = next(filter(None, (_dense_entry(table, simple, position) for table in tables)), None)
        size = next((size for size in (4, 3, 2, 1) if simple[position : position + size] in tables[0].idle), 0)
        if entry is None and not size:
            position += 1
            continue
        if start < position:
            yield None, run[start:position]
        if entry is not None and len(entry.words[0]) >= size:
            size = len(entry.words[0])
            yield entry, run[position : position + size]
        start = position = position + size
    if start < position:
        yield None, run[start:]


def _dense_entry(table: _Language, run: str, position: int) -> _Entry | None:
    for start in (run[position : position + 2], run[position]):
        for entry in table.entries.get(start, ()):
            if run.startswith(entry.words[0], position):
                return entry
    return None


class _Translation:
    def __init__(self, indexed: Container[str]) -> None:
        self._indexed = indexed
        self.text: dict[str, None] = {}
        self.besides: dict[str, None] = {}

    def add(self, entry: _Entry) -> None:
        fitting = [word for word in entry.meaning if words(word, 1)[0] in self._indexed] or entry.meaning[:1]
        self.text |= dict.fromkeys(fitting)
        self.besides |= dict.fromkeys(entry.besides)

    def clause(self, original: str) -> Clause:
        values = re.findall(_VALUE if dense_runs(original) else r"\d+", original)
        return " ".join([*self.text, *values]), tuple(self.besides)


def _parts(token: str, name: str, indexed: Container[str]) -> list[_Entry]:
    if name not in _COMPOUNDING or len(token) < 2 * _SHORTEST_STEM:
        return []
    table = _tables()[name]
    for end in range(len(token) - 3, 2, -1):
        tail = table.starting([token[end:]])
        if tail is None:
            continue
        for link in _LINKS:
            head = token[:end].removesuffix(link) if link else token[:end]
            if entry := table.starting([head]):
                return [entry[1], tail[1]]
            if len(head) >= 3 and _is_indexed(head, indexed):
                return [_Entry((head,), (head,), ()), tail[1]]
    return []


def _plain(text: str) -> str:
    return folded(text).lower().translate(_LETTERS)


def _is_english(token: str, indexed: Container[str]) -> bool:
    return all(word in indexed or is_bare(word) or is_word(word) for word in words(token, 2))


def _is_indexed(token: str, indexed: Container[str]) -> bool:
    return all(word in indexed or is_bare(word) for word in words(token, 2))


def _is_form(stem: str, token: str) -> bool:
    if token == stem:
        return True
    is_stem = len(stem) >= _SHORTEST_STEM and len(token) - len(stem) <= _LONGEST_ENDING
    return is_stem and token.startswith(stem)


@cache
def _tables() -> dict[str, _Language]:
    head, *lines = (line for line in _TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    _, *names = head.split("|")
    entries: dict[str, dict[tuple[str, ...], _Entry]] = {name: {} for name in names}
    idle: dict[str, set[str]] = {name: set() for name in names}
    for line in lines:
        if line.startswith("= "):
            name, _, column = line[2:].partition(": ")
            idle[name].update(_plain(_two_spellings(column, " ")).split())
            continue
        english, *columns = line.split("|")
        meaning, besides = (tuple(part.split()) for part in f"{english}/".split("/")[:2])
        for name, column in zip(names, columns, strict=True):
            for row in map(str.split, _plain(_two_spellings(column, ",")).split(",")):
                _enter(entries[name], (" ".join(row),) if name in _DENSE else tuple(row), meaning, besides)
    return {name: _Language(_by_start(entries[name].values()), idle[name]) for name in names}


def _enter(
    entries: dict[tuple[str, ...], _Entry], row: tuple[str, ...], meaning: tuple[str, ...], besides: tuple[str, ...]
) -> None:
    if (entry := entries.get(row)) is None:
        entries[row] = _Entry(row, meaning, besides)
    elif entry.meaning != meaning:  # a second one
        entries[row] = _Entry(row, entry.meaning, (*entry.besides, *meaning))


def _by_start(entries: Iterable[_Entry]) -> dict[str, list[_Entry]]:
    """By the first two characters, longest first."""
    table: dict[str, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda entry: (-len(entry.words), -len("".join(entry.words)))):
        if entry.words and entry.words[0]:
            table.setdefault(entry.words[0][:2], []).append(entry)
    return table


def _two_spellings(text: str, separator: str) -> str:
    return separator.join(dict.fromkeys((text.translate(_TRADITIONAL), text.translate(_UMLAUTS))))
