"""Results that a JSON path projects: what stays of them, what is said of the rest, and where the whole is."""

import json
import re
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.calls.results.long_results import LongResults
from mcp_hub.calls.results.projection import MOST_PROJECTED, WHOLE
from mcp_hub.clock import SystemClock
from mcp_hub.errors import InvalidParams, StoreError
from mcp_hub.events import Completed
from mcp_hub.selection import check_path
from mcp_hub.selection.engine import select
from mcp_hub.stores.documents import DocumentLimits
from mcp_hub.stores.long_results import memory_documents
from mcp_hub.types import CallId, Era
from tests.unit.calls.long_results import LIMIT, quarter, result, text_block
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

SHELF = {"books": [{"id": n, "title": f"T{n}", "isbn": None} for n in range(4)], "total": 4, "a b": {"c": [True]}}
SHAPE = '{books: [4 of {id: number, title: string(2), isbn: null}], total: number, "a b": {c: [1 of boolean]}}'
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


class Shelf:
    """Results of calls with a path, and what is kept of them."""

    def __init__(self) -> None:
        self.documents = memory_documents(Path("."), DocumentLimits(), lambda: 0.0)
        self.results = LongResults(self.documents, quarter, SystemClock())

    async def projected(self, body: bytes, path: str, tokens: int = LIMIT, era: Era = Era.MODERN) -> Any:
        call = Call(
            CallId("st_1"), "s", "tools/call", {"name": msgspec.Raw(b'"t"')}, {}, "s", "me", era, {},
            result_tokens=tokens, path=path,
        )  # fmt: skip
        return json.loads((await self.results.fitted(None, call, Completed(body, era))).result)

    async def read(self, id_: str, principal: str = "me") -> str:
        part = await self.documents.read(principal, id_, 0, 1 << 30)
        assert part is not None
        return part[0].decode()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def texts(answer: Any) -> list[str]:
    return [block["text"] for block in answer["content"] if block["type"] == "text"]


@pytest.mark.parametrize(
    ("path", "selected"),
    [
        ("$.total", 4),
        ("$['a b'].c[0]", True),
        ("$.books[0]", SHELF["books"][0]),  # type: ignore[index]
        ("$.books[*].id", [0, 1, 2, 3]),
        ("$.books[?@.id > 1].title", ["T2", "T3"]),
        ("$..id", [0, 1, 2, 3]),
        ("$.books[0].isbn", None),
        ("$", SHELF),
    ],
)
async def test_a_path_selects_from_structured_content_or_the_only_text(shelf: Shelf, path: str, selected: Any) -> None:
    structured = result(text_block(json.dumps(SHELF)), structuredContent=SHELF, isError=False, _meta={"x": 1})
    text = result(text_block(json.dumps(SHELF, indent=1)), _meta={"x": 1})
    for body in (structured, text):
        answer = await shelf.projected(body, path)
        assert "structuredContent" not in answer and answer["_meta"]["x"] == 1
        chosen, note = texts(answer)
        assert json.loads(chosen) == selected and answer["_meta"][WHOLE] in note
        assert json.loads(await shelf.read(answer["_meta"][WHOLE])) == SHELF


async def test_the_whole_of_another_principal_is_not_there(shelf: Shelf) -> None:
    answer = await shelf.projected(result(structuredContent=SHELF), "$.total")
    assert await shelf.documents.read("you", answer["_meta"][WHOLE], 0, 10) is None


async def test_a_program_gets_the_values_and_nothing_else(shelf: Shelf) -> None:
    """It is not listed `read_result`, and would take a note for a value."""
    answer = await shelf.projected(result(structuredContent=SHELF), "$.books[*].id", tokens=0)
    assert texts(answer) == ["[0,1,2,3]"] and WHOLE in answer["_meta"]


@pytest.mark.parametrize("path", ["$.total", "$.nothing", "$.books[*].id"])
async def test_errors_and_questions_are_never_projected(shelf: Shelf, path: str) -> None:
    for more in ({"isError": True}, {"isError": 1}, {"isError": "true"}, {"resultType": "input_required"}):
        body = result(text_block(json.dumps(SHELF)), structuredContent=SHELF, **more)
        assert await shelf.projected(body, path) == json.loads(body)


async def test_pictures_stay_and_other_texts_are_kept(shelf: Shelf) -> None:
    body = result(text_block("in words"), IMAGE, text_block(json.dumps(SHELF)), structuredContent=SHELF)
    answer = await shelf.projected(body, "$.total")
    assert [block["type"] for block in answer["content"]] == ["text", "image", "text"]
    assert answer["content"][1] == IMAGE and answer["content"][0]["text"] == "4"
    (id_,) = re.findall(r"its texts: id=(r\w+)", texts(answer)[1])
    assert json.loads(await shelf.read(id_)) == [text_block("in words")]


@pytest.mark.parametrize(
    ("blocks", "reason"),
    [
        ([text_block("done, 3 rows")], "its text is not JSON"),
        ([text_block("1"), text_block("2")], "2 texts, not one"),
        ([IMAGE], "0 texts, not one"),
        ([], "0 texts, not one"),
    ],
)
async def test_a_result_without_json_stays_and_says_so(shelf: Shelf, blocks: list[Any], reason: str) -> None:
    """The tool has run: its answer must not be lost, or the model would run it again."""
    answer = await shelf.projected(result(*blocks), "$.total")
    *same, note = answer["content"]
    assert same == blocks and "'$.total' is not used" in note["text"] and reason in note["text"]
    assert not answer.get("isError")


@pytest.mark.parametrize(
    ("path", "failed", "position"),
    [
        ("$.buks", ".buks", 2),
        ("$.books[*].name", ".name", 11),
        ("$.books[9].id", "[9]", 8),
        ("$.books[?@.id > 7].title", "[?@.id > 7]", 8),
        ("$['a b'].c[0].d", ".d", 14),
        ("$..author", "..author", 2),
    ],
)
async def test_a_path_that_selects_nothing_names_the_place_and_the_shape(
    shelf: Shelf, path: str, failed: str, position: int
) -> None:
    answer = await shelf.projected(result(structuredContent=SHELF), path)
    note = texts(answer)[-1]
    assert f"{failed} at character {position} selects nothing" in note
    shape = note.partition("$ is ")[2].partition("; the whole")[0]
    assert (
        shape == '{books: [4 of {id: number, title: string(2), isbn: null}], total: number, "a b": {c: [1 of boolean]}}'
    )
    assert len(shape.encode()) <= 300 and answer["_meta"][WHOLE] in note and not answer.get("isError")


async def test_selections_of_many_that_are_empty_are_still_lists(shelf: Shelf) -> None:
    assert texts(await shelf.projected(result(structuredContent=SHELF), "$.books[?@.id > 7]"))[0] == "[]"
    assert len(texts(await shelf.projected(result(structuredContent=SHELF), "$.nothing"))) == 1


@pytest.mark.parametrize(
    "value",
    [
        {f"key_{n}": {"a": n, "b": [n] * n} for n in range(500)},
        [[[[[[[[[1]]]]]]]]],
        {"k" * 5000: 1, "\n\u202e": "x"},
        {f"ключ{n}": "я" for n in range(99)},
        [{f"k{n}": n for n in range(99)}] * 3,
        "text",
        {},
    ],
)
async def test_shapes_have_at_most_300_bytes_on_one_line(shelf: Shelf, value: Any) -> None:
    for path in ("$.x.y", "$[0].x", "$.key_7.zzz"):
        answer = await shelf.projected(result(text_block(json.dumps(value))), path)
        note = texts(answer)[-1]
        shapes = note.partition("selects nothing")[2].partition("; the whole")[0]
        assert len(shapes.removeprefix(" in ").replace(". $ is ", "").encode()) <= 300 and "\n" not in note


async def test_a_shape_has_keys_as_a_path_writes_them(shelf: Shelf) -> None:
    answer = await shelf.projected(result(structuredContent={"имя": 1, "a\u202eb": 2}), "$.name")
    assert '$ is {"имя": number, "a\\u202eb": number}' in texts(answer)[0]
    assert texts(await shelf.projected(result(structuredContent={"имя": 1}), "$['имя']"))[0] == "1"


async def test_content_that_is_null_is_none(shelf: Shelf) -> None:
    answer = await shelf.projected(b'{"content":null,"structuredContent":{"a":1}}', "$.a")
    assert texts(answer)[0] == "1" and "structuredContent" not in answer


async def test_a_selection_that_is_too_long_is_cut_like_any_result(shelf: Shelf) -> None:
    body = result(structuredContent={"rows": [{"n": n, "text": "x" * 50} for n in range(2000)]})
    answer = await shelf.projected(body, "$.rows[*]")
    assert quarter("".join(texts(answer))) <= LIMIT and "records" in texts(answer)[0]
    whole = await shelf.projected(body, "$.rows[*].n", tokens=0)
    assert json.loads(texts(whole)[0]) == list(range(2000))


async def test_bounds_end_a_selection_with_the_shape_and_the_whole(shelf: Shelf) -> None:
    shelf.results = LongResults(shelf.documents, quarter, Late())
    deep = {"a": [[1] * 60] * 60}
    body = result(structuredContent={"a": [deep] * 40})
    answer = await shelf.projected(body, "$..[?@..[?@..[?@ == 0]]]")
    (note,) = texts(answer)
    assert "selects too much or takes too long" in note and "$ is {a: [40 of" in note and answer["_meta"][WHOLE] in note


async def test_a_result_beyond_the_limit_is_kept_and_nothing_selected(shelf: Shelf) -> None:
    body = result(text_block(json.dumps({"a": "x" * MOST_PROJECTED})))
    answer = await shelf.projected(body, "$.a")
    (note,) = texts(answer)
    assert "larger than" in note and len(note) < 300 and answer["_meta"][WHOLE] in note


@pytest.mark.parametrize("is_structured", [True, False])
async def test_json_of_very_many_values_is_kept_without_being_read(shelf: Shelf, is_structured: bool) -> None:
    """In memory an empty object is thirty times as large as in JSON."""
    many = b'{"a":[' + b"{}," * 1_000_001 + b"1]}"
    body = b'{"content":[],"structuredContent":' + many + b"}" if is_structured else result(text_block(many.decode()))
    answer = await shelf.projected(body, "$.a[0]")
    (note,) = texts(answer)
    assert "more than 1000000 objects and arrays" in note and answer["_meta"][WHOLE] in note


async def test_many_texts_beside_a_large_structure_are_compared_in_linear_time(shelf: Shelf) -> None:
    rows = [{"n": n} for n in range(100_000)]
    with anyio.fail_after(WAIT):
        answer = await shelf.projected(result(*[text_block("1")] * 20_000, structuredContent=rows), "$[7].n")
    assert texts(answer)[0] == "7" and "its texts" in texts(answer)[1]


class Late:
    """A clock by which every second look is too late."""

    def __init__(self) -> None:
        self._time = 0.0

    def now(self) -> float:
        self._time += 4.0
        return self._time


class Full:
    """A store that takes nothing."""

    async def put(self, principal: str, body: bytes) -> str:
        raise StoreError("full")


async def test_a_store_that_takes_nothing_does_not_hinder_a_projection() -> None:
    shelf = Shelf()
    shelf.results = LongResults(Full(), quarter, SystemClock())  # type: ignore[arg-type]  # it is never read
    answer = await shelf.projected(result(structuredContent=SHELF), "$.total")
    assert texts(answer)[0] == "4" and "read_result" not in texts(answer)[1] and "_meta" not in answer
    for path in ("$.nothing", "$.books[?@.id > 7]"):  # the tool has run, and its answer is nowhere else
        answer = await shelf.projected(result(text_block("in words"), structuredContent=SHELF), path)
        assert answer["structuredContent"] == SHELF and texts(answer)[0] == "in words"
        assert "selects nothing" in texts(answer)[1] and "the whole, which cannot be kept" in texts(answer)[1]


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("books", 1),
        (".books", 1),
        ("", 1),
        ("$.books[", 9),
        ("$.books[?", 10),
        ("$.a b", 5),
        ("$.books[?@.id = 1]", 15),
        ("$" + "[?@" * 140 + "]" * 140, 62),
    ],
)
def test_an_invalid_path_names_the_position(path: str, position: int) -> None:
    with pytest.raises(InvalidParams, match="is not a JSON path") as refused:
        check_path(path)
    assert refused.value.data == {"character": position}
    assert f"character {position}" in str(refused.value) or "at its end" in str(refused.value)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*)*x", "((a*)*)*b"])
def test_patterns_that_explode_elsewhere_take_no_time(pattern: str) -> None:
    body = json.dumps(["a" * 50_000]).encode()
    for function in ("match", "search"):
        assert len(select(body, f"$[?{function}(@, '{pattern}')]", lambda: False).values) in (0, 1)


def test_nothing_of_other_query_languages_is_understood() -> None:
    for text in (
        "$ENV",
        "$.a | $.b",
        "env",
        "$.a.length()",
        "import 'x'",
        "$[(@.length-1)]",
        "$.~a",
        "$.a & $.b",
        "^.a",
    ):
        with pytest.raises(InvalidParams):
            check_path(text)
