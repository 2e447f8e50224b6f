"""What a model sees of a result that is too long for it."""

import base64
import json
import re
from typing import Any

import msgspec
import pytest

from mcp_hub.calls.results.truncate import cut
from mcp_hub.stores.documents import document_id
from tests.unit.calls.long_results import LIMIT, cut_of, lines_of, quarter, result, text_block

LONG = lines_of(200_000)
NOTICE = re.compile(r"\[… .* read_result id=(r[a-z2-7]{12}).*\]")
IMAGE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(bytes(range(256)) * 40_000).decode()}


def parted(text: str) -> tuple[str, str, str]:
    """Head, notice and tail of a text that was cut between lines."""
    found = NOTICE.search(text)
    assert found is not None
    return text[: found.start()], found[0], text[found.end() + 1 :]


def test_a_result_that_fits_is_left_alone() -> None:
    for body in (result(text_block("short")), result(text_block("abc " * (LIMIT - 4))), b"{}", result(IMAGE)):
        assert cut(body, LIMIT, quarter) is None


def test_a_text_of_5_mb_is_shown_from_its_start_and_its_end() -> None:
    whole = lines_of(5_000_000)
    seen, found = cut_of(result(text_block(whole), isError=False))
    (block,) = seen["content"]
    head, notice, tail = parted(block["text"])
    assert whole.startswith(head) and whole.endswith(tail) and head.endswith("\n")
    assert 0.6 * LIMIT < quarter(head) <= 0.7 * LIMIT and 0.15 * LIMIT < quarter(tail) <= 0.2 * LIMIT
    lines = whole.count("\n") - head.count("\n") - tail.count("\n")
    size = len(whole) - len(head) - len(tail)
    assert notice == f"[… {lines} lines ({size} bytes) cut; read_result id={found.documents[0].id} offset={len(head)}]"
    assert [kept.body.decode() for kept in found.documents] == [whole]
    assert seen["isError"] is False


def test_one_line_of_5_mb_is_cut_between_two_characters() -> None:
    whole = "žluťoučký kůň 🐎 " * 220_000
    seen, found = cut_of(result(text_block(whole)))
    head, notice, tail = parted(seen["content"][0]["text"])
    assert whole.startswith(head.removesuffix("\n")) and whole.endswith(tail) and head and tail
    assert f"offset={len(head.removesuffix(chr(10)).encode())}]" in notice and "lines" not in notice
    assert found.documents[0].body.decode() == whole


def test_several_texts_share_the_limit_and_short_ones_stay_whole() -> None:
    seen, found = cut_of(result(text_block("summary"), text_block(LONG), text_block("x" + LONG), text_block("end")))
    first, *long, last = [block["text"] for block in seen["content"]]
    assert (first, last) == ("summary", "end")
    assert [kept.id for kept in found.documents] == [parted(text)[1].split("id=")[1].split(" ")[0] for text in long]
    assert all(0.4 * LIMIT < quarter(text) <= LIMIT / 2 for text in long)


def test_of_very_many_texts_whole_blocks_are_left_out() -> None:
    blocks = [text_block(f"hit {number}: " + "word " * 20, _meta={"n": number}) for number in range(10_000)]
    seen, found = cut_of(result(*blocks[:50], IMAGE, *blocks[50:]))
    shown = [block for block in seen["content"] if block.get("type") == "text"]
    at = next(index for index, block in enumerate(shown) if "…" in block["text"] and "JSON array" in block["text"])
    head, tail = shown[: at - 1], shown[at + 1 :]
    assert head == blocks[: len(head)] and tail == blocks[-len(tail) :]
    assert len(head) > 100 and len(tail) > 30 and IMAGE in seen["content"]
    missing = json.loads(found.documents[-1].body)
    assert shown[at]["text"].startswith(f"[… {len(missing)} of 10000 texts cut: {len(head) + 1} to ")
    assert blocks[len(head) + 1 : -len(tail)] == missing
    assert sum(quarter(block["text"]) for block in shown) <= LIMIT


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"row {number}", "tags": ["a", "b"]} for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "indented"])
def test_an_array_of_100_000_rows_stays_json_and_says_what_is_shown(indent: int | None) -> None:
    whole = json.dumps(rows(100_000), indent=indent)
    seen, found = cut_of(result(text_block(whole)))
    text = seen["content"][0]["text"]
    items = json.loads(text)
    at = next(index for index, item in enumerate(items) if isinstance(item, str))
    head, tail = items[:at], items[at + 1 :]
    assert head == rows(100_000)[: len(head)] and tail == rows(100_000)[-len(tail) :] and len(head) > len(tail) > 10
    first, last = len(head), 100_000 - len(tail) - 1
    what = re.escape(f"[… {last - first + 1} of 100000 records, {first} to {last} (") + r"\d+ bytes\), cut; "
    assert re.fullmatch(what + rf"read_result id={found.documents[0].id} path=\$\[{first}:{last + 1}\]\]", items[at])
    assert found.documents[0].body.decode() == whole and quarter(text) <= LIMIT
    assert len([line for line in text.split("\n") if "…" in line]) == 1


def test_an_array_within_an_object_is_cut_in_its_place() -> None:
    whole = {"ok": True, "data": {"page 1": rows(5000), "total": 5000}, "next": None}
    seen, _ = cut_of(result(text_block(json.dumps(whole))))
    shown = json.loads(seen["content"][0]["text"])
    assert shown.keys() == whole.keys() and shown["data"]["total"] == 5000 and shown["next"] is None
    (notice,) = [item for item in shown["data"]["page 1"] if isinstance(item, str)]
    assert re.search(r'path=\$\.data\["page 1"\]\[\d+:\d+\]\]$', notice)


WITHOUT_RECORDS = {
    "one huge record": json.dumps(["x" * 100_000, 1, 2, 3]),
    "no array": json.dumps({"a": "x" * 100_000}),
    "three arrays": json.dumps({"a": rows(1000), "b": rows(1000), "c": rows(1000)}),
    "broken": "[" + json.dumps(rows(2000)) + ", broken",
    "deep": "[" * 100_000,
    "a name too long": json.dumps({"x" * 70: rows(2000)}),
    "an array as text before it": json.dumps({"s": json.dumps([1] * 20_000), "n": [1] * 20_000}),
    "nothing in it": "{}" + " " * 200_000,
}


@pytest.mark.parametrize("whole", WITHOUT_RECORDS.values(), ids=WITHOUT_RECORDS)
def test_json_without_records_that_could_be_shown_is_cut_as_a_text(whole: str) -> None:
    seen, found = cut_of(result(text_block(whole)))
    head, notice, tail = parted(seen["content"][0]["text"])
    assert whole.startswith(head.removesuffix("\n")) and whole.endswith(tail) and "records" not in notice
    assert found.documents[0].body.decode() == whole


def test_what_is_no_text_passes_byte_for_byte() -> None:
    link = b'{"type":"resource_link", "uri":"a:b","name":"\\u0041" ,"x":1.0e3}'
    blob = b'{"type":"resource","resource":{"uri":"a:b","blob":"' + b"A" * 100_000 + b'"}}'
    odd = b'{"type":"text","text":17}'
    image = msgspec.json.encode(IMAGE)
    meta = b'{"its": "own", "big":12345678901234567890123}'
    text = msgspec.json.encode(text_block(LONG, annotations={"priority": 1.0}))
    body = b'{"_meta":%b,"content":[%b],"more":[ ]}' % (meta, b",".join((link, image, text, blob, odd)))
    found = cut(body, LIMIT, quarter)
    assert found is not None
    start, end = found.result.index(b'{"type":"text"'), found.result.index(blob)
    before, after = b'{"_meta":%b,"content":[%b,%b,' % (meta, link, image), b'%b,%b],"more":[ ]}' % (blob, odd)
    assert found.result[:start] == before and found.result[end:] == after
    block = json.loads(found.result[start : end - 1])
    assert block["annotations"] == {"priority": 1.0} and "read_result" in block["text"]


def test_a_block_of_an_unknown_type_is_left_whole() -> None:
    assert cut(result({"type": "poem", "text": LONG}), LIMIT, quarter) is None
    seen, _ = cut_of(result({"type": "poem", "text": LONG}, text_block(LONG)))
    assert seen["content"][0]["text"] == LONG


def test_texts_of_resources_are_cut_and_blobs_are_not() -> None:
    embedded = {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "text": LONG}, "x": 1}
    seen, found = cut_of(result(embedded))
    resource = seen["content"][0]["resource"]
    assert (resource["uri"], resource["mimeType"], seen["content"][0]["x"]) == ("a:b", "text/plain", 1)
    assert found.documents[0].id == document_id(LONG.encode()) and found.documents[0].id in resource["text"]
    contents = [{"uri": "a:1", "text": LONG}, {"uri": "a:2", "blob": "A" * 100_000}]
    seen, found = cut_of(msgspec.json.encode({"contents": contents, "ttlMs": 5}))
    assert found.documents[0].id in seen["contents"][0]["text"]
    assert seen["contents"][1] == contents[1] and seen["ttlMs"] == 5


@pytest.mark.parametrize(
    "body",
    [
        b"[1]" + b" " * 99_999,
        b'{"content":7,"x":"%b"}' % (b"x" * 99_999),
        b'{"content":["%b"]}' % (b"x" * 99_999),
        b'{"resultType":"input_required","inputRequests":"%b"}' % (b"x" * 99_999),
        b'{"content":[{"type":["%b"],"text":"x"}]}' % (b"x" * 99_999),
        b'{"broken":' + b"[" * 99_999,
    ],
    ids=["array", "content no array", "block no object", "no content", "odd type", "deep"],
)
def test_what_has_not_the_shape_of_a_result_is_left_alone(body: bytes) -> None:
    assert cut(body, LIMIT, quarter) is None


def test_structured_content_is_left_whole_though_the_text_beside_it_is_cut() -> None:
    structured = {"rows": rows(5000)}
    seen, found = cut_of(result(text_block(json.dumps(structured, indent=1)), structuredContent=structured))
    assert seen["structuredContent"] == structured and len(found.documents) == 1


def test_structured_content_that_is_dropped_is_mentioned_where_the_text_says_the_same() -> None:
    structured = {"rows": rows(5000)}
    body = result(text_block("see"), text_block(json.dumps(structured, indent=1)), structuredContent=structured)
    seen, found = cut_of(body, may_drop_structured=True)
    assert seen.keys() == {"content"} and len(seen["content"]) == 2
    assert "; structuredContent, the same, is left out]" in seen["content"][1]["text"]
    assert json.loads(found.documents[0].body) == structured


def test_structured_content_that_no_text_says_becomes_one() -> None:
    structured = {"rows": rows(5000)}
    body = result(text_block("5000 rows found"), structuredContent=structured)
    seen, found = cut_of(body, may_drop_structured=True)
    assert [block["text"] for block in seen["content"]][0] == "5000 rows found" and "structuredContent" not in seen
    assert "; this is structuredContent]" in seen["content"][1]["text"]
    assert json.loads(found.documents[0].body) == structured
