"""Cuts a long result: head and tail of its texts, with a notice between. Pure and deterministic.

Cuts lie at line borders, or between records of JSON arrays. Everything but texts stays byte for byte.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from mcp_hub.calls.results.json_records import Records, json_records
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.stores.documents import document_id
from mcp_hub.types import RawJson, RawObject, plural

Estimate = Callable[[str], int]
"""A text's tokens: at most its bytes in UTF-8."""

DENSE: Final = 4
"""A character's bytes, and tokens, at most."""
_SPARSE: Final = 16
"""Characters per token at most; longer tokens are overestimated."""
_NEAR: Final = 0.95
"""Part of the tokens that is enough."""
_ROUNDS: Final = 10
LEAST: Final = 256
"""The lowest limit in tokens: room for text beside notices."""
_SHARE: Final = 128
"""Tokens per text at least; with less, whole blocks are left out."""
_BLOCK: Final = 4
"""Tokens of a block beside its text."""
_HEAD: Final = 0.7
_TAIL: Final = 0.2
_SMALLER: Final = 0.85
_TRIES: Final = 24
_ESTIMATED: Final = 64
"""Times the limit: beyond so many characters the maximum is assumed."""
_blocks = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_surely_over(text: str, tokens: int) -> bool:
    return len(text) > tokens * _SPARSE


def head_within(text: str, tokens: int, estimate: Estimate) -> int:
    """Characters within `tokens`, nearly the most."""
    return _largest_within(len(text), tokens, lambda count: estimate(text[:count]))


def tail_within(text: str, tokens: int, estimate: Estimate) -> int:
    """Characters within `tokens`, nearly the most."""
    return _largest_within(len(text), tokens, lambda count: estimate(text[len(text) - count :]))


def _largest_within(length: int, tokens: int, cost: Callable[[int], int]) -> int:
    """Guesses by ratio, else bisects."""
    if tokens <= 0:
        return 0
    bound = min(length, tokens * _SPARSE)
    fits, too_many = min(bound, tokens // DENSE), bound + 1
    guess = max(min(bound, tokens * 3), fits)
    for turn in range(_ROUNDS):
        spent = cost(guess)
        if spent <= tokens:
            fits = guess
        else:
            too_many = guess
        if too_many - fits <= 1 or tokens * _NEAR <= spent <= tokens:
            break
        by_ratio = guess * tokens // spent if spent and turn % 2 == 0 else (fits + too_many) // 2
        guess = min(max(by_ratio, fits + 1), too_many - 1)
    return fits


class _Kept(msgspec.Struct, frozen=True):
    """A cut text in UTF-8, under its id."""

    id: str
    body: bytes


class _Cut(msgspec.Struct, frozen=True):
    result: bytes
    documents: tuple[_Kept, ...]


class _Block(msgspec.Struct):
    """A block's or resource's text."""

    type: str = ""
    text: str | msgspec.UnsetType = msgspec.UNSET
    resource: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_block = msgspec.json.Decoder(_Block).decode


class _Text(msgspec.Struct):
    """A block's text, with `cost` in tokens and `note`."""

    index: int
    text: str
    cost: int = 0
    note: str = ""


def cut(result: RawJson, limit: int, estimate: Estimate, *, may_drop_structured: bool = False) -> _Cut | None:
    """Cuts the encoded result of `tools/call` or `resources/read` to `limit` tokens of text; None if it fits.

    Structured content that may be dropped counts, unless a text equals it.
    """
    limit = max(limit, LEAST)
    members = raw_object(result) if len(result) > limit else None
    if members is None:
        return None
    name = "contents" if "contents" in members else "content"
    try:
        items = _blocks(members.get(name, b"[]"))
    except (msgspec.DecodeError, RecursionError):
        return None
    texts = list(_texts(items, is_tool=name == "content"))
    kept_members = members
    if may_drop_structured and _is_over(members.get("structuredContent"), limit, estimate):
        kept_members = {key: value for key, value in members.items() if key != "structuredContent"}
        _take_structured(members["structuredContent"], items, texts)
    _count(texts, limit, estimate)
    if sum(text.cost for text in texts) <= limit:
        return None if kept_members is members else _Cut(object_bytes(kept_members), ())
    cutting = _Cutting(items, estimate)
    cutting.run(texts, limit)
    blocks = [block for block in cutting.blocks if block is not None]
    whole = {**kept_members, name: msgspec.Raw(object_bytes(blocks))}
    return _Cut(object_bytes(whole), tuple(cutting.documents.values()))


def _texts(items: list[msgspec.Raw], *, is_tool: bool) -> Iterator[_Text]:
    for index, item in enumerate(items):
        try:
            block = _block(item)
            if is_tool and block.type == "resource" and block.resource is not msgspec.UNSET:
                block = _block(block.resource)
            elif is_tool and block.type != "text":
                continue
        except (msgspec.DecodeError, RecursionError):  # not of the shape that the specification gives it
            continue
        if block.text is not msgspec.UNSET:
            yield _Text(index, block.text)


def _is_over(structured: msgspec.Raw | None, limit: int, estimate: Estimate) -> bool:
    text = "" if structured is None else bytes(structured).decode("utf-8", "replace")
    return is_surely_over(text, limit) or estimate(text) > limit


def _take_structured(structured: msgspec.Raw, items: list[msgspec.Raw], texts: list[_Text]) -> None:
    """Makes it a text, unless one equals it."""
    compact = msgspec.json.format(bytes(structured), indent=-1)
    for text in texts:
        if _is_same(text.text, compact):
            text.note = "; structuredContent, the same, is left out"
            return
    content = bytes(structured).decode("utf-8", "replace")
    items.append(msgspec.Raw(object_bytes({"type": "text", "text": content})))
    texts.append(_Text(len(items) - 1, content, note="; this is structuredContent"))


def _is_same(text: str, compact: bytes) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return msgspec.json.format(text.encode(), indent=-1) == compact
    except (msgspec.DecodeError, RecursionError):
        return False


def _count(texts: list[_Text], limit: int, estimate: Estimate) -> None:
    """Sets the texts' costs, exact where it matters."""
    countable = limit * _ESTIMATED if len(texts) * _BLOCK <= limit else 0
    for text in texts:
        length = len(text.text)
        if is_surely_over(text.text, limit):
            text.cost = limit + 1
        elif length > countable:
            text.cost = length if text.text.isascii() else len(text.text.encode())
        else:
            text.cost = estimate(text.text)
            countable -= length
        text.cost += _BLOCK


class _Cutting:
    def __init__(self, items: list[msgspec.Raw], estimate: Estimate) -> None:
        self.blocks: list[msgspec.Raw | None] = list(items)
        self.documents: dict[str, _Kept] = {}
        self._items = items
        self._estimate = estimate

    def run(self, texts: list[_Text], limit: int) -> None:
        share = _share([text.cost for text in texts], limit)
        if share < _SHARE:
            self._leave_out(texts, limit)
            return
        for text in texts:
            if text.cost > share:
                self._replace(text, share - _BLOCK)

    def _leave_out(self, texts: list[_Text], limit: int) -> None:
        """Keeps first and last blocks; leaves out those between."""
        room = limit - _SHARE
        first = self._whole(texts, room * _HEAD)
        remaining = int(room * _HEAD) - sum(text.cost for text in texts[:first])
        if remaining >= _SHARE:
            self._replace(texts[first], remaining - _BLOCK)
            first += 1
        last = self._whole(texts[first:][::-1], room * _TAIL)
        middle = texts[first : len(texts) - last]
        whole = [bytes(self._items[text.index]) for text in middle]
        id_ = self._keep(b"[" + b",\n".join(whole) + b"]")
        notice = (
            f"[… {len(middle)} of {len(texts)} texts cut: {first} to {first + len(middle) - 1} "
            f"({sum(map(len, whole))} bytes); read_result id={id_}: JSON array of their blocks]"
        )
        self._set(middle[0].index, notice)
        for text in middle[1:]:
            self.blocks[text.index] = None

    def _whole(self, texts: list[_Text], room: float) -> int:
        for index, text in enumerate(texts):
            if not is_surely_over(text.text, int(room)):
                text.cost = self._estimate(text.text) + _BLOCK
            room -= text.cost
            if room < 0:
                return index
        return len(texts)

    def _replace(self, text: _Text, tokens: int) -> None:
        body = text.text.encode()
        self._set(text.index, _shortened(text, body, self._keep(body), tokens, self._estimate))

    def _keep(self, body: bytes) -> str:
        id_ = document_id(body)
        self.documents[id_] = _Kept(id_, body)
        return id_

    def _set(self, index: int, text: str) -> None:
        members: RawObject = raw_object(self._items[index]) or {}
        if "text" in members:
            changed = {**members, "text": msgspec.Raw(object_bytes(text))}
        else:
            resource = raw_object(members["resource"]) or {}
            inner = {**resource, "text": msgspec.Raw(object_bytes(text))}
            changed = {**members, "resource": msgspec.Raw(object_bytes(inner))}
        self.blocks[index] = msgspec.Raw(object_bytes(changed))


def _share(costs: list[int], limit: int) -> int:
    """The largest cost for each text so that all are within the limit."""
    remaining = limit
    costs = sorted(costs)
    for index, cost in enumerate(costs):
        share = remaining // (len(costs) - index)
        if cost > share:
            return share
        remaining -= cost
    return limit


def _shortened(text: _Text, body: bytes, id_: str, tokens: int, estimate: Estimate) -> str:
    records = json_records(body)
    for shorten in (_between_records, _between_lines):
        room = tokens / _SMALLER
        for _ in range(_TRIES):
            room *= _SMALLER
            parts = _Parts(
                text=text, body=body, records=records, id=id_, head=int(room * _HEAD), tail=int(room * _TAIL)
            )
            short = shorten(parts, estimate)
            if short is not None and estimate(short) <= tokens:
                return short
            if short is None and shorten is _between_records:
                break
    return f"[… {len(body)} bytes cut; read_result id={id_}{text.note}]"


class _Parts(msgspec.Struct, frozen=True):
    text: _Text
    body: bytes
    records: Records | None
    id: str
    head: int
    tail: int

    def notice(self, extent: str, where: str) -> str:
        return f"[… {extent} cut; read_result id={self.id} {where}{self.text.note}]"


def _between_lines(parts: _Parts, estimate: Estimate) -> str | None:
    """None if head and tail overlap."""
    text = parts.text.text
    head = head_within(text, parts.head, estimate)
    border = text.rfind("\n", head // 2, head)
    if border >= 0:
        head = border + 1
    tail = tail_within(text, parts.tail, estimate)
    start = len(text) - tail
    border = text.find("\n", start, start + tail // 2)
    if border >= 0:
        start = border + 1
    if head >= start:
        return None
    lines, size = text.count("\n", head, start), len(text[head:start].encode())
    extent = f"{plural(lines, 'line')} ({size} bytes)" if lines else f"{size} bytes"
    notice = parts.notice(extent, f"offset={len(text[:head].encode())}")
    before = "" if head == 0 or text[head - 1] == "\n" else "\n"
    return f"{text[:head]}{before}{notice}\n{text[start:]}"


def _between_records(parts: _Parts, estimate: Estimate) -> str | None:
    """None if no record fits."""
    records, text, body = parts.records, parts.text.text, parts.body
    if records is None:
        return None
    count = len(records.lengths)
    first, end = records.head(len(text[: head_within(text, parts.head, estimate)].encode()))
    room = len(text[len(text) - tail_within(text, parts.tail, estimate) :].encode())
    last, start = records.tail(max(len(body) - room, end))
    if first == 0 or first + last >= count or len(body) - records.end > room:
        return None
    extent = f"{count - first - last} of {count} records, {first} to {count - last - 1} ({start - end} bytes),"
    notice = object_bytes(parts.notice(extent, f"path={records.path}[{first}:{count - last}]")).decode()
    between = ",\n" if last else "\n"
    return f"{body[:end].decode()},\n{notice}{between}{body[start:].decode()}"
