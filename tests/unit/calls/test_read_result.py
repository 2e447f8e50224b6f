"""`read_result` over long results as they are cut and kept: every byte comes back, and only to whom it belongs."""

import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.results.long_results import LongResults
from mcp_hub.calls.runner import new_record
from mcp_hub.clock import SystemClock
from mcp_hub.errors import StoreError
from mcp_hub.stores.documents import DocumentLimits, Documents, document_id
from mcp_hub.stores.long_results import file_documents, memory_documents
from tests.unit.calls.long_results import LIMIT, call_of, lines_of, quarter, result, text_block

pytestmark = pytest.mark.anyio

NEXT = re.compile(r"next: offset=(\d+)\]$")


class Hub:
    """What is kept, and the tool that reads it."""

    def __init__(self, documents: Documents, clock: list[float]) -> None:
        self.documents = documents
        self.now = clock
        self.keeping = LongResults(documents, quarter, SystemClock())
        self.handler = self.keeping.handler(LIMIT)

    async def cut(self, body: bytes, principal: str = "me", **more: Any) -> Any:
        return json.loads(await self.keeping.shortened(principal, body, LIMIT, **more))

    async def keep(self, text: str, principal: str = "me") -> str:
        return await self.documents.put(principal, text.encode())

    async def call(self, *, principal: str = "me", **arguments: Any) -> Any:
        call = call_of(principal, **arguments)
        done = await self.handler(call, new_record(call, self.handler, TimeLimits(1, 1), SystemClock()))
        answer = json.loads(done.result)
        assert sum(quarter(block["text"]) for block in answer["content"]) <= LIMIT
        return answer

    async def texts(self, **arguments: Any) -> list[str]:
        answer = await self.call(**arguments)
        assert answer["isError"] is False, answer
        return [block["text"] for block in answer["content"]]

    async def error(self, **arguments: Any) -> str:
        answer = await self.call(**arguments)
        assert answer["isError"] is True
        (block,) = answer["content"]
        return str(block["text"])

    async def everything(self, id_: str, **more: Any) -> str:
        parts, at = [], 0
        while True:
            text, notice = await self.texts(id=id_, offset=at, **more)
            parts.append(text)
            if notice.endswith("; this is the end]"):
                return "".join(parts)
            found = NEXT.search(notice)
            assert found is not None
            at = int(found[1])


@pytest.fixture(params=["memory", "files"])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Hub]:
    now = [1e9]
    made = memory_documents if request.param == "memory" else file_documents
    documents = made(tmp_path, DocumentLimits(), lambda: now[0])
    await documents.open()
    yield Hub(documents, now)


def id_in(text: str) -> str:
    found = re.search(r"read_result id=(r[a-z2-7]{12})", text)
    assert found is not None
    return found[1]


async def test_a_text_of_5_mb_comes_back_page_by_page(hub: Hub) -> None:
    whole = lines_of(5_000_000)
    seen = await hub.cut(result(text_block(whole)))
    assert await hub.everything(id_in(seen["content"][0]["text"])) == whole


async def test_the_notice_says_where_to_read_on(hub: Hub) -> None:
    whole = lines_of(300_000)
    text = (await hub.cut(result(text_block(whole))))["content"][0]["text"]
    head, rest = text.split("[… ")
    offset = re.search(r"offset=(\d+)\]", rest)
    assert offset is not None
    page, _ = await hub.texts(id=id_in(rest), offset=offset[1])
    assert whole.startswith(head + page)


@pytest.mark.slow
async def test_the_rows_that_were_cut_come_back_by_the_path_that_is_named(hub: Hub) -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(100_000)]
    whole = json.dumps(rows)
    items = json.loads((await hub.cut(result(text_block(whole))))["content"][0]["text"])
    (notice,) = [item for item in items if isinstance(item, str)]
    path = re.search(r"path=(\S+)\]$", notice)
    assert path is not None
    at = items.index(notice)
    text, said = await hub.texts(id=id_in(notice), path=path[1])
    assert said.startswith(f"[{100_001 - len(items)} values, one a line; bytes 0 to ")
    assert [json.loads(line) for line in text.splitlines()] == rows[at : at + text.count("\n")]
    assert await hub.everything(id_in(notice)) == whole


@pytest.mark.slow
async def test_a_20_mb_image_passes_whole_beside_a_text_that_is_cut(hub: Hub) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"\x89PNG" * 5_000_000).decode()}
    body = result(image, text_block("caption"))
    assert await hub.keeping.shortened("me", body, LIMIT) is body
    whole = lines_of(100_000)
    seen = await hub.cut(result(image, text_block(whole)))
    assert seen["content"][0] == image
    assert await hub.everything(id_in(seen["content"][1]["text"])) == whole


async def test_the_same_result_names_the_same_texts_whenever_it_is_cut(hub: Hub) -> None:
    body = result(text_block(lines_of(200_000)))
    first = await hub.keeping.shortened("me", body, LIMIT)
    hub.now[0] += 3000
    assert await hub.keeping.shortened("me", body, LIMIT) == first
    hub.now[0] += 3000  # longer than it was kept for at first
    assert await hub.texts(id=id_in(first.decode()))


async def test_what_cannot_be_kept_is_passed_on_whole(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(principal: str, body: bytes) -> str:
        raise StoreError("no space left")

    monkeypatch.setattr(hub.documents, "put", full)
    body = result(text_block(lines_of(200_000)))
    assert await hub.keeping.shortened("me", body, LIMIT) is body


async def test_a_page_has_as_many_bytes_as_are_asked_for(hub: Hub) -> None:
    id_ = await hub.keep("0123456789" * 10)
    assert await hub.texts(id=id_, offset=5, limit=10) == ["5678901234", "[bytes 5 to 15 of 100; next: offset=15]"]
    assert await hub.texts(id=id_, offset=95) == ["56789", "[bytes 95 to 100 of 100; this is the end]"]
    assert await hub.texts(id=id_, offset=100) == ["", "[bytes 100 to 100 of 100; this is the end]"]
    assert (await hub.texts(id=id_, offset=5, limit=94))[1] == "[bytes 5 to 99 of 100; next: offset=99]"
    assert await hub.everything(id_, limit=7) == "0123456789" * 10
    accented = await hub.keep("aé🐎")
    assert await hub.texts(id=accented, offset=5) == ["🐎", "[bytes 3 to 7 of 7; this is the end]"]


async def test_an_offset_behind_the_end_says_where_that_is(hub: Hub) -> None:
    id_ = await hub.keep("0123456789")
    for more in ({}, {"grep": "1"}):
        assert (
            await hub.error(id=id_, offset=11, **more) == "read_result: offset 11 is behind the end: there are 10 bytes"
        )
    assert "there are 9 bytes" in await hub.error(id=await hub.keep('{"a":[1234,5678]}'), path="$.a[*]", offset=10)


async def test_matching_lines_are_shown_and_where_to_continue_the_search(hub: Hub) -> None:
    id_ = await hub.keep("one\ntwo\nthree\n")
    assert await hub.texts(id=id_, grep="t.") == [
        "2:4: two\n3:8: three",
        "[2 matches as line:offset: text; this is all]",
    ]
    assert await hub.texts(id=id_, grep="t.", limit=1) == [
        "2:4: two",
        "[1 match as line:offset: text; there may be more: offset=8]",
    ]
    assert await hub.texts(id=id_, grep="t.", offset=8) == [
        "3:8: three",
        "[1 match as line:offset: text from offset 8 on; this is all]",
    ]
    assert await hub.texts(id=id_, grep="nowhere") == ["[nothing matches; this is all]"]


@pytest.mark.slow
async def test_what_a_path_selects_is_paged_and_searched_like_a_text(hub: Hub) -> None:
    id_ = await hub.keep(json.dumps({"items": [{"n": number} for number in range(1000)]}))
    values = "".join(f"{number}\n" for number in range(1000)).removesuffix("\n")
    assert await hub.everything(id_, path="$.items[*].n", limit=100) == values
    lines, notice = await hub.texts(id=id_, path="$.items[*].n", grep="^77")
    assert [line.split(": ")[1] for line in lines.split("\n")] == ["77", *map(str, range(770, 780))]
    assert notice == "[1000 values, one a line; 11 matches as line:offset: text; this is all]"
    shape = "$ is {items: [1000 of {n: number}]}"
    notice = f"[path '$.nothing': .nothing at character 2 selects nothing. {shape}]"
    assert await hub.texts(id=id_, path="$.nothing") == [notice]


async def test_unknown_foreign_and_expired_texts_cannot_be_distinguished(hub: Hub) -> None:
    id_ = await hub.keep("mine")
    never_was = document_id(b"never was")
    foreign = await hub.error(id=id_, principal="somebody else")
    unknown = await hub.error(id=never_was)
    hub.now[0] += 3601
    expired = await hub.error(id=id_)
    assert {foreign, unknown.replace(never_was, id_), expired} == {
        f"read_result: '{id_}' is not found: it has expired, or never existed. "
        "Call the tool that it came from again for a fresh one."
    }
    for more in ({"grep": "("}, {"path": "("}, {"offset": 99}):
        assert await hub.error(id=id_, **more) == expired


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "missing required field `id`"),
        ({"id": 3}, "got `int` - at `$.id`"),
        ({"id": "r", "offset": [1]}, "got `array` - at `$.offset`"),
        ({"id": "r", "offset": True}, "got `bool` - at `$.offset`"),
        ({"id": "r", "offset": -1}, "`offset` is a whole number from 0 on, not '-1'"),
        ({"id": "r", "offset": "x" * 999}, f"`offset` is a whole number from 0 on, not '{'x' * 60}'"),
        ({"id": "r", "offset": 1.5}, "not '1.5'"),
        ({"id": "r", "offset": 1e300}, "`offset` is a whole number"),
        ({"id": "r", "offset": "٣"}, "`offset` is a whole number"),
        ({"id": "r", "limit": 0}, "`limit` is a whole number from 1 on, not '0'"),
        ({"id": "r", "grep": 7}, "got `int` - at `$.grep`"),
        ({"id": "r", "path": ["$"]}, "got `array` - at `$.path`"),
        ({"id": "r", "pattern": "x"}, "unknown field `pattern`. Known arguments: id, offset, limit, grep, path."),
        ({"id": "r", "x" * 99_999: 1}, "Known arguments: id, offset, limit, grep, path"),
    ],
)
async def test_wrong_arguments_are_named(hub: Hub, arguments: dict[str, Any], reason: str) -> None:
    said = await hub.error(**arguments)
    assert said.startswith("read_result: wrong arguments: ") and reason in said


async def test_a_pattern_or_a_path_that_is_none_is_an_error_for_the_model(hub: Hub) -> None:
    id_ = await hub.keep("[1]")
    assert await hub.error(id=id_, grep="(a") == "read_result: grep: '(a' is not a pattern of RE2: missing ): (a"
    assert "path: '$[' is not a JSON path: " in await hub.error(id=id_, path="$[")
    assert "the text is not JSON" in await hub.error(id=await hub.keep("text"), path="$")
