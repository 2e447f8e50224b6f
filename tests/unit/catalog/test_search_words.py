"""Words as they are compared."""

import pytest

from mcp_hub.catalog.search.words import clauses, compounds, key, words


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "create_issue": "creat issu",
        "createIssue": "creat issu",
        "getHTTPResponse": "get http respons",
        "HTTPServer2Port80": "http server 2 port 80",
        "list-files.v2": "list fil v 2",
        "issues categories classes boxes": "issu category class box",
        "status analysis address": "status analysis address",
        "stopping called planned filling": "stop call plan fill",
        "string bring red sing": "string bring red sing",
        "café Ångström ﬁle": "caf angstrom fil",
        "ＡＢＣ １２": "abc 12",
        "天气预报": "天气 气预 预报",
        "天": "天",
        "ファイル検索": "ファ ァイ イル ル検 検索",
        "Привет мир": "привет мир",
        "हिन्दी": "हिन्दी",
        "x👍y": "x y",
    }.items(),
)
def test_text_falls_apart_into_words(text: str, expected: str) -> None:
    assert words(text, 99) == expected.split()


def test_no_more_words_than_asked_for_and_none_longer_than_forty() -> None:
    assert words("one two three", 2) == ["one", "two"] == words("one two — drei", 2)
    assert words("天" * 50, 7) == ["天天"] * 7
    for text in ("x" * 1000, "X" * 1000, "9" * 1000, "я" * 1000, "Ж9" * 500):
        assert max(map(len, words(text, 99))) <= 40


def test_mixed_case_is_also_taken_as_one_word() -> None:
    assert compounds("GitHub and PostgreSQL, getHubs: PLAIN plain aVeryLongOneOfMany", 9) == [
        "github",
        "postgresql",
        "gethub",
    ]
    assert compounds("GitHub GitLab", 1) == ["github"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Read it. Then write it, and send it", 3),
        ("v1.2 of a.b.c", 1),
        ("first;\nsecond\nthird", 3),
        ("查天气，发邮件。", 2),
        ("", 0),
    ],
)
def test_requests_fall_apart_into_clauses(text: str, count: int) -> None:
    assert len([part for part in clauses(text) if words(part, 9)]) == count


def test_names_are_compared_without_case_and_separators() -> None:
    assert key("Create_Issue") == key(" create-issue\n") == key("create.issue") == "createissue"
    assert key("Größe ①") == key("grosse1") or key("Größe") == key("große") == "große"
    assert key("---") != key("--") and key("") == key("  ") == ""
    assert key("x" * 300) != key("x" * 256)
