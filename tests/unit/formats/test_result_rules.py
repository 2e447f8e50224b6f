"""Results of every kind keep the rules of every provider, and a result's own words are never a mark."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.formats.calls import read_results, write_results
from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.records import ModelCall
from mcp_hub.formats.results import TAKEN, MediaPart, file_name
from tests.unit.formats import server_results
from tests.unit.formats.documented_results import broken_result
from tests.unit.formats.lost_texts import lost_texts
from tests.unit.formats.result_kinds import (
    BLOCKS,
    JPEG,
    MP3,
    PDF,
    PNG,
    SVG,
    blob,
    encoded,
    gif_of,
    image,
    jpeg_of,
    png_of,
    results,
    text,
    webp_of,
)
from tests.unit.formats.test_call_streams import JUNK, places

Json = dict[str, Any]
CALLS = [ModelCall("c1", "see", {}), ModelCall("c2", "add", {})]
FINE: Json = {"content": [text("3")]}


def written(into: Format, result: Json) -> list[Json]:
    return write_results(CALLS, {"c1": result, "c2": FINE}, into)


@pytest.mark.parametrize("into", PROVIDERS)
def test_every_kind_of_result_keeps_the_rules(into: Format) -> None:
    broken = {name: faults for name, result in results() if (faults := broken_result(into, written(into, result)))}
    assert broken == {}


@pytest.mark.parametrize("into", PROVIDERS)
@pytest.mark.parametrize("kind", server_results.RESULTS)
def test_results_of_public_servers_keep_the_rules_and_lose_no_text(into: Format, kind: str) -> None:
    result = server_results.RESULTS[kind]
    messages = written(into, result)
    assert broken_result(into, messages) == [] and lost_texts(result, messages) == []
    assert str(messages).count(server_results.DATA.get(kind, "no data")) <= 1, "data of media are there once at most"
    (_, back), _ = read_results(messages, into)
    assert bool(back.get("isError")) == bool(result.get("isError"))


@pytest.mark.parametrize("kind", ["a number", "a text, wrapped", "a list, an item a block"])
def test_a_structure_that_only_wraps_the_texts_is_not_said_again(kind: str) -> None:
    result = server_results.RESULTS[kind]
    (message,) = written(Format.ANTHROPIC, result)
    assert message["content"][0]["content"] == [text(block["text"]) for block in result["content"]]


def test_the_checker_finds_lost_texts() -> None:
    result = server_results.RESULTS["words beside a structure"]
    for kept in ({"structuredContent": result["structuredContent"]}, {"content": result["content"]}):
        assert lost_texts(result, written(Format.ANTHROPIC, kept))


@pytest.mark.parametrize("into", Format)
def test_success_and_failure_of_every_kind_come_back(into: Format) -> None:
    for name, result in results():
        first, second = read_results(written(into, result), into)
        assert (name, first[0], bool(first[1].get("isError"))) == (name, "c1", bool(result.get("isError")))
        assert second == ("c2", FINE)


WORDS = ["Error: 3 lines", "Error:", "error: small", "ERROR", "Success: 4", "Success:", "Error: Success: Error:"]
WORDS += ["errors are listed below", "Error:  two spaces", "Success:\nline", "3"]


@pytest.mark.parametrize("into", Format)
@pytest.mark.parametrize("words", WORDS)
def test_words_of_a_result_are_never_a_mark(into: Format, words: str) -> None:
    for outcome in ({}, {"isError": True}):
        result = {"content": [text(words)], **outcome}
        assert read_results(written(into, result), into)[0] == ("c1", result)


@pytest.mark.parametrize("words", WORDS)
def test_words_before_a_picture_are_never_a_mark(words: str) -> None:
    for outcome in ({}, {"isError": True}):
        result = {"content": [text(words), BLOCKS["png"]], **outcome}
        assert read_results(written(Format.OPENAI_RESPONSES, result), Format.OPENAI_RESPONSES)[0] == ("c1", result)


def test_media_of_a_failure_follow_all_results_for_anthropic() -> None:
    (message,) = written(Format.ANTHROPIC, {"content": [text("no"), BLOCKS["png"], BLOCKS["pdf"]], "isError": True})
    assert [block["type"] for block in message["content"]] == [
        "tool_result",
        "tool_result",
        "text",
        "image",
        "document",
    ]
    failed = message["content"][0]
    assert [part["text"] for part in failed["content"]] == [
        *("no", "[image: image/png, below]", "[report.pdf: application/pdf, below]")
    ]
    assert "c1" in message["content"][2]["text"] and "see" in message["content"][2]["text"]


@pytest.mark.parametrize("into", PROVIDERS)
def test_svg_and_text_files_are_text(into: Format) -> None:
    content = [BLOCKS[name] for name in ("svg", "csv", "latin", "json", "markdown by name")]
    said = str(written(into, {"content": content}))
    for words in (SVG, "file:///a/b.csv\\nname\\nÄrger\\n", "Ärger", '{"a": 1}', "# Grüße"):
        assert words.replace("\\n", "\n") in said or words in said or repr(words)[1:-1] in said


@pytest.mark.parametrize("into", PROVIDERS)
@pytest.mark.parametrize("name", ["bmp", "tiff", "alac", "flv", "zip", "bytes", "broken utf-8", "no data", "bad data"])
def test_media_that_nobody_takes_are_described(into: Format, name: str) -> None:
    block = BLOCKS[name]
    said = str(written(into, {"content": [block]}))
    data = block.get("data") or block.get("resource", {}).get("blob") or "not base64"
    assert data not in said and "[" in said and ("cannot carry" in said or "data" in said)


@pytest.mark.parametrize("into", PROVIDERS)
@pytest.mark.parametrize(
    ("name", "media_type", "data"),
    [
        ("jpg", "image/jpeg", JPEG),
        ("jpeg that says png", "image/jpeg", JPEG),
        ("png without type", "image/png", PNG),
        ("capitals", "image/png", PNG),
        ("data in lines", "image/png", PNG),
        ("data url", "image/png", PNG),
        ("no padding", "image/png", PNG),
        ("pdf by data", "application/pdf", PDF),
    ],
)
def test_media_of_odd_spelling_are_carried(into: Format, name: str, media_type: str, data: str) -> None:
    said = str(written(into, {"content": [BLOCKS[name]]}))
    assert media_type in said and data in said


BIG = {
    **{
        "png": png_of(8001, 10),
        "long png": png_of(10, 8001),
        "jpeg": jpeg_of(8001, 10),
        "long jpeg": jpeg_of(10, 8001),
    },
    **{"gif": gif_of(8001, 10), "heavy": png_of(10, 10, 4 << 20), **webp_of(8001, 10)},
}
SMALL = [png_of(8000, 10), jpeg_of(8000, 8000), gif_of(10, 8000), *webp_of(8000, 8000).values()]


@pytest.mark.parametrize("data", BIG.values(), ids=BIG)
def test_pictures_that_anthropic_refuses_for_their_size_are_described(data: str) -> None:
    result = {"content": [image("image/png", data)]}
    said = str(written(Format.ANTHROPIC, result))
    assert data not in said and ("pixels" in said or "too many" in said)
    assert data in str(written(Format.OPENAI, result))


@pytest.mark.parametrize("data", SMALL)
def test_pictures_within_the_size_are_carried(data: str) -> None:
    assert data in str(written(Format.ANTHROPIC, {"content": [image("image/png", data)]}))


@pytest.mark.parametrize("into", PROVIDERS)
@pytest.mark.parametrize("kind", ["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"])
def test_data_of_another_type_are_never_sent_as_a_picture(into: Format, kind: str) -> None:
    page, other = encoded(b"<html>502 Bad Gateway</html>"), encoded(b"\0\0\0 ftypavif" + bytes(9))
    for data, words in ((page, "502 Bad Gateway"), (other, "whose data are something else")):
        block = blob("file:///a/b", kind, data) if kind == "application/pdf" else image(kind, data)
        said = str(written(into, {"content": [block]}))
        assert words in said and data not in said


DEEP: Any = {}
for _ in range(2000):
    DEEP = {"a": DEEP}
ODD: dict[str, tuple[Json, str]] = {
    "a text for content": ({"content": "plain words"}, "plain words"),
    "a block for content": ({"content": text("plain words")}, "plain words"),
    "a text for a block": ({"content": ["plain words"]}, "plain words"),
    "a number for a text": ({"content": [{"type": "text", "text": 0}]}, "0"),
    "the first version": ({"toolResult": {"n": 7}}, "{'n': 7}"),
    "half a character": ({"content": [text("plain \ud800 words")]}, "plain ? words"),
    "half a character, structure": ({"structuredContent": {"n": "\ud800"}}, "ud800"),
    "half a character, file": ({"content": [blob("a:b", "text/plain; charset=utf-7", encoded(b"so+2AA-"))]}, "so?"),
    "deep structure": ({"content": [text("plain words")], "structuredContent": DEEP}, "plain words"),
    "deep block": ({"content": [{"type": "odd", "n": DEEP}]}, "too many levels"),
    "deep text": ({"content": [text("[" * 9999)], "structuredContent": {"n": 7}}, "'n': 7"),
    "long name": ({"content": [blob("file:///" + "n" * 5000 + ".pdf", "application/pdf", PDF)]}, "nn.pdf"),
}


@pytest.mark.parametrize("into", PROVIDERS)
@pytest.mark.parametrize("kind", ODD)
def test_no_odd_result_is_lost_or_breaks_a_request(into: Format, kind: str) -> None:
    result, words = ODD[kind]
    sent = written(into, result)
    assert broken_result(into, sent) == [] and json.dumps(sent, ensure_ascii=False).encode()
    said = str(sent).replace('"', "'").replace("\\", "").replace("':", "': ").replace("':  ", "': ")
    assert words in said or (kind == "long name" and "gemini" in into)
    assert read_results(sent, into)[0][0] == "c1" and "n" * 300 not in said


def test_audio_of_a_chat_has_a_format() -> None:
    *_, user = written(Format.OPENAI, {"content": [BLOCKS["mp3"]]})
    assert user["content"][1] == {"type": "input_audio", "input_audio": {"data": MP3, "format": "mp3"}}


@pytest.mark.parametrize("into", PROVIDERS)
def test_a_failure_without_words_says_that_it_is_one(into: Format) -> None:
    for content in ([], [text(" \n")], [BLOCKS["png"]]):
        assert "failed and gave no reason" in str(written(into, {"content": content, "isError": True}))


PICTURE = {"type": "base64", "media_type": "image/png", "data": PNG}
REFUSED: list[tuple[Format, Json]] = [
    (Format.ANTHROPIC, {"is_error": True, "content": [text("x"), {"type": "image", "source": PICTURE}]}),
    (Format.ANTHROPIC, {"is_error": True}),
    (Format.ANTHROPIC, {"content": [text(" ")]}),
    (Format.ANTHROPIC, {"content": [{"type": "image", "source": {**PICTURE, "media_type": "image/jpeg"}}]}),
    (Format.ANTHROPIC, {"content": [{"type": "image", "source": {**PICTURE, "data": "!"}}]}),
    (Format.ANTHROPIC, {"content": [{"type": "audio"}]}),
    (Format.OPENAI_RESPONSES, {"output": []}),
    (Format.OPENAI_RESPONSES, {"output": [{"type": "input_text", "text": ""}]}),
    (Format.OPENAI_RESPONSES, {"output": [{"type": "input_image", "image_url": f"data:image/svg+xml;base64,{PNG}"}]}),
    (
        Format.OPENAI_RESPONSES,
        {"output": [{"type": "input_file", "filename": "a.zip", "file_data": f"data:application/zip;base64,{PDF}"}]},
    ),
    (Format.GEMINI_INTERACTIONS, {"result": [{"type": "text", "text": ""}]}),
    (Format.GEMINI_INTERACTIONS, {"result": [{"type": "image", "mime_type": "image/svg+xml", "data": PNG}]}),
    (Format.GEMINI_INTERACTIONS, {"result": [{"type": "document", "mime_type": "application/zip", "data": PNG}]}),
    (Format.GEMINI, {"response": {"error": ""}}),
    (Format.GEMINI, {"response": {"result": "x"}}),
    (
        Format.GEMINI,
        {"response": {"output": ""}, "parts": [{"inlineData": {"mimeType": "image/svg+xml", "data": PNG}}]},
    ),
]


def message_of(into: Format, part: Json) -> Json:
    match into:
        case Format.ANTHROPIC:
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", **part}]}
        case Format.GEMINI_INTERACTIONS:
            return {"type": "function_result", "call_id": "c1", "name": "see", **part}
        case Format.OPENAI_RESPONSES:
            return {"type": "function_call_output", "call_id": "c1", **part}
        case _:
            return {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "see", **part}}]}


@pytest.mark.parametrize(("into", "part"), REFUSED)
def test_the_checker_finds_what_providers_refuse(into: Format, part: Json) -> None:
    assert broken_result(into, [message_of(into, part)])


def test_the_page_names_the_media_that_each_format_takes() -> None:
    page = Path("docs/formats.md").read_text(encoding="utf-8")
    section = page.partition("## What a result can have")[2].partition("\n## ")[0]
    rows = {cells[1].strip(" `"): cells[2] for line in section.splitlines() if len(cells := line.split("|")) > 3}
    pictures = {media_type for media_type in TAKEN["anthropic"] if media_type in rows["anthropic"]}
    assert pictures == TAKEN["anthropic"] == TAKEN["gemini"]
    for into, first in ((Format.OPENAI, "the same"), (Format.OPENAI_RESPONSES, "pictures and PDF")):
        more = TAKEN[into] - pictures
        words = {media_type if media_type.startswith("audio") else file_ending(media_type) for media_type in more}
        assert first in rows[into] and all(f"`{word}`" in rows[into] for word in words)
        assert rows[into].count("`") == 2 * len(words)


def file_ending(media_type: str) -> str:
    return file_name(MediaPart("file", media_type, "", ""))


@pytest.mark.parametrize("into", Format)
def test_results_with_junk_in_them_keep_the_rules_too(into: Format) -> None:
    rng = random.Random(13)
    kinds = [result for _, result in results()]
    for _ in range(500):
        result = json.loads(json.dumps(rng.choice([one for one in kinds if one])))
        holder, key = rng.choice(list(places(result)))
        holder[key] = rng.choice(JUNK)
        messages = written(into, result)
        assert broken_result(into, messages) == []
        assert len(read_results(messages, into)) == 2
