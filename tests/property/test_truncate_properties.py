"""Whatever a result is: what is shown of it is within the limit, and nothing of it is lost."""

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.calls.results.truncate import LEAST, cut
from mcp_hub.stores.documents import document_id
from tests.examples import examples
from tests.unit.calls.long_results import ESTIMATES, text_block

PIECES = st.sampled_from(
    [
        *("word ", "\n", "\r\n", "🐎", "e\u0301", "é", "\0", '"', "\\", " " * 40, "x" * 300, '{"a":1},\n', "[", "]"),
        *("漢字", "1,"),
    ]
)
TEXTS = st.tuples(st.lists(PIECES, max_size=30), st.integers(1, 60)).map(lambda drawn: "".join(drawn[0]) * drawn[1])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**12) | TEXTS.map(lambda text: text[:50]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=10,
)
ARRAYS = st.tuples(st.lists(VALUES, max_size=8), st.integers(1, 200), st.sampled_from([None, 1])).map(
    lambda drawn: json.dumps(drawn[0] * drawn[1], indent=drawn[2], ensure_ascii=False)
)
WRAPPED = st.tuples(ARRAYS, st.text(max_size=5)).map(
    lambda drawn: f'{{"n": 1, {json.dumps(drawn[1])}: {drawn[0]}, "m": 2}}'
)
ANY_TEXTS = TEXTS | ARRAYS | WRAPPED
LINK = {"type": "resource_link", "uri": "a:b", "name": "n"}
ID = re.compile(r"read_result id=(r[a-z2-7]{12})")


def textual(block: dict[str, Any]) -> bool:
    return bool(block["type"] == "text")


@settings(max_examples=examples(120))
@given(
    texts=st.lists(ANY_TEXTS, min_size=1, max_size=6),
    copies=st.integers(1, 12),
    limit=st.integers(1, 3000),
    estimate=st.sampled_from(ESTIMATES),
)
def test_what_is_shown_is_within_the_limit_and_the_rest_is_kept(
    texts: list[str], copies: int, limit: int, estimate: Callable[[str], int]
) -> None:
    blocks = [text_block(text, at=at) for at, text in enumerate(texts * copies)]
    blocks.insert(len(blocks) // 2, LINK)
    found = cut(msgspec.json.encode({"content": blocks, "isError": True}), limit, estimate)
    if found is None:
        assert sum(estimate(text) for text in texts * copies) <= max(limit, LEAST)
        return
    seen = json.loads(found.result)
    assert seen["isError"] is True and LINK in seen["content"]
    shown = [block for block in seen["content"] if textual(block)]
    assert sum(estimate(block["text"]) for block in shown) <= max(limit, LEAST)
    kept = {one.id: one.body for one in found.documents}
    assert all(document_id(body) == id_ for id_, body in kept.items())
    whole: list[dict[str, Any]] = []
    for block, original in restored(shown, kept, blocks):
        assert block == original
        whole.append(block)
    assert len(whole) == len(blocks) - 1


def restored(
    shown: list[dict[str, Any]], kept: dict[str, bytes], blocks: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each block as it can be read, and as it was."""
    originals = [block for block in blocks if textual(block)]
    read: list[dict[str, Any]] = []
    for block in shown:
        if block["text"] == originals[len(read)]["text"]:
            read.append(block)
            continue
        ids = [id_ for id_ in ID.findall(block["text"]) if id_ in kept]
        body = kept[ids[0]]
        if "JSON array of their blocks]" in block["text"]:
            read += json.loads(body)
        else:
            read.append({**block, "text": body.decode()})
            check_borders(block["text"], body.decode())
    return list(zip(read, originals, strict=True))


def check_borders(short: str, whole: str) -> None:
    """Head and tail are the text's own, and JSON stays JSON where it was cut between records."""
    head, _, rest = short.partition("[… ")
    tail = rest.partition("]\n")[2]
    if " records, " in rest:
        assert json.dumps(json.loads(short)) and whole.startswith(head.removesuffix('\n"').removesuffix(","))
        return
    assert whole.startswith(head) or whole.startswith(head.removesuffix("\n"))
    assert whole.endswith(tail)
    offset = re.search(r"offset=(\d+)", rest)
    if offset is not None:
        assert whole.encode()[: int(offset[1])].decode() in (head, head.removesuffix("\n"))


@settings(max_examples=examples(200))
@given(
    body=st.binary(max_size=400) | VALUES.map(lambda value: msgspec.json.encode({"content": value})),
    limit=st.integers(0, 300),
)
def test_nothing_that_is_no_result_is_touched_or_an_error(body: bytes, limit: int) -> None:
    padded = body + b" " * 300
    found = cut(padded, limit, ESTIMATES[0])
    assert found is None or json.loads(found.result).keys() == json.loads(body).keys()


@settings(max_examples=examples(100))
@given(
    value=st.dictionaries(st.text(max_size=5), VALUES, min_size=1),
    copies=st.integers(1, 80),
    indent=st.sampled_from([None, 2]),
    beside=st.booleans(),
)
def test_structured_content_that_goes_can_be_read(
    value: dict[str, Any], copies: int, indent: int | None, beside: bool
) -> None:
    structured = {f"{key}{copy}": inner for key, inner in value.items() for copy in range(copies)}
    text = json.dumps(structured, indent=indent) if beside else "see"
    body = json.dumps({"content": [text_block(text)], "structuredContent": structured}).encode()
    found = cut(body, LEAST, ESTIMATES[0], may_drop_structured=True)
    if found is None:
        return
    seen = json.loads(found.result)
    if "structuredContent" in seen:
        assert seen["structuredContent"] == structured
        return
    whole = [json.loads(kept.body) for kept in found.documents] + [
        json.loads(block["text"]) for block in seen["content"] if block["text"] == text != "see"
    ]
    assert structured in whole
