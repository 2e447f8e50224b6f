import json

import pytest

from mcp_hub.catalog.texts import cut, escaped, first_sentence, one_line, sentences


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("  a\r\n\tb\x00c\x85d\u2028e ", "a b c d e"),
        ("\x1b[1;31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x1b\\", "red link"),
        ("a\u202eb\u2066c\u200bd\ufeffe\u00adf", "abcdef"),
        ("see\U000e0041\U000e0042", "see"),
        ("\U0001f600\ufe0f!", "\U0001f600!"),
        ("\ud800x\ue000", "x"),
        ("Größe 中文 עברית", "Größe 中文 עברית"),
    ],
)
def test_a_line_shows_all_that_is_in_it(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Reads a file. Returns it.", "Reads a file"),
        ("Reads a file\nReturns it", "Reads a file"),
        ("Reads a file, and\nreturns it. More.", "Reads a file, and returns it"),
        ("Reads e.g. a file. More.", "Reads e.g. a file"),
        ("Reads version 1.5 of it! More", "Reads version 1.5 of it!"),
        ("# Reader\n\nReads a file.", "Reads a file"),
        ("## Reader", "Reader"),
        ("**Reads** a file", "Reads a file"),
        ("- reads", "reads"),
        ("读取文件。返回内容。", "读取文件"),
        ("\n\n---\n...\nx", "x"),
        ("...", ""),
        ("", ""),
    ],
)
def test_the_first_sentence_says_what_a_text_is_about(text: str, first: str) -> None:
    assert first_sentence(text, 99) == first


def test_every_sentence_is_one_line() -> None:
    assert sentences("# Title\nOne two. Three\nfour.\n* Five") == ["One two.", "Three four.", "Five"]


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two…"),
        ("one, two", 6, "one…"),
        ("one two", 4, "one…"),
        ("unbreakable", 5, "unbr…"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
        ("ab", -1, ""),
    ],
)
def test_a_cut_keeps_whole_words(text: str, limit: int, shown: str) -> None:
    assert cut(text, limit) == shown


def test_json_is_escaped_where_it_cannot_be_seen() -> None:
    value = {"a": "x\u202ey\u2028z\U000e0041é中\x7f"}
    text = escaped(json.dumps(value, ensure_ascii=False))
    assert text == '{"a": "x\\u202ey\\u2028z\\udb40\\udc41é中\\u007f"}'
    assert json.loads(text) == value
