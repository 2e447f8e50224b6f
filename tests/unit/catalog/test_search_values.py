"""Values of a query count as what tools call them."""

import pytest

from mcp_hub.catalog.search.phrases import kinds, without_statements, without_values
from mcp_hub.catalog.search.words import words
from tests.unit.catalog.search_tools import found, index, properties, tool


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("flights on 2026-05-01", "date"),
        ("due 1/5/26", "date"),
        ("am 01.05.2026", "date"),
        ("on May 5th", "date"),
        ("the 3rd of march", "date"),
        ("at 7 PM", "time"),
        ("from 19:30 on", "time"),
        ("open https://example.com", "url"),
        ("see www.example.com", "url"),
        ("write to ann@example.com", "email"),
        ("where is 192.168.0.1", "ip"),
        ("near 48.8584, 2.2945", "latitude longitude"),
        ("how much is 17 * 3", "calculate"),
        ("save it as /tmp/report.pdf", "file"),
        ("what is in ~/notes", "directory"),
        ("7 % of 80", "calculate"),
        ("all *.css below here", "pattern"),
        ("say hi in #random", "channel"),
        ("call +49 30 1234567", "phone"),
        ("pay to GB33 BUKB 2020 1555 5555 55", "account"),
        ("what does arXiv say in 2106.09685", "arxiv paper"),
        ("where is parse( used", "code"),
        ("look at ABC-12", "jira"),
        ("look at #12", "github"),
    ],
)
def test_a_value_is_of_its_kind(text: str, kind: str) -> None:
    assert list(kinds(text)) == words(kind, 2)


@pytest.mark.parametrize(
    "text", ["", "list the open issues", "version 3.10.12", "top 10 of 1,000", "you may go", "e.g. it", "UTF-8"]
)
def test_other_texts_have_no_values(text: str) -> None:
    assert list(kinds(text)) == []


def test_of_equal_tools_the_one_that_takes_such_a_value_comes_first() -> None:
    hub = index(
        tool("weather", "by_city", "The weather of a city.", properties(city="")),
        tool("weather", "by_day", "The weather of a city.", properties(city="", date="")),
    )
    assert found(hub, "the weather of Rome")[0] == "weather_by_city"
    assert found(hub, "the weather of Rome on 2026-05-01")[0] == "weather_by_day"


def test_a_word_that_is_said_counts_more_than_the_kind_of_a_value() -> None:
    hub = index(tool("a", "date", "Dates."), tool("a", "time", "Times."))
    assert found(hub, "the time of 2026-05-01")[0] == "a_time"


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("ABC-12", "issue"),
        ("#12", "issue"),
        ("#ffcc00", "color"),
        ("#abc", "color"),
        ("LH454", "flight number"),
        ("D-ABCD", "aircraft"),
        ("1f3a9bc", "commit"),
        ("feature/dark-mode", "branch"),
        ("A1:C9", "sheet range"),
    ],
)
def test_a_value_without_words_of_its_own_becomes_one(text: str, noun: str) -> None:
    assert without_values(f"show {text} now").split() == ["show", *noun.split(), "now"]


@pytest.mark.parametrize("text", ["UTF-8", "COVID-19", "and/or", "top 10", "GPT-4", "a #hashtag", "1234567", "defaced"])
def test_other_texts_stay(text: str) -> None:
    assert without_values(text) == text


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("SELECT a, b FROM t WHERE c = 1", "read"),
        ("select * from t", "read"),
        ("INSERT INTO t VALUES (1, 2)", "write"),
        ("update t set a = 1", "write"),
        ("CREATE TABLE t (a INT)", "create"),
        ("project = ABC AND status = Open", "JQL"),
        ("why is =VLOOKUP(A2, B:C, 2) wrong", "formula"),
        ("=SUM(A1:A9)", "formula"),
        ("B2 says #REF!", "formula"),
    ],
)
def test_a_statement_becomes_its_kind(text: str, noun: str) -> None:
    assert noun in without_statements(text).split() and "t" not in without_statements(text).split()


@pytest.mark.parametrize(
    "text", ["select the best from the list", "update the set of rules", "a status report", "a=B", "x == Y", "#Name"]
)
def test_prose_is_no_statement(text: str) -> None:
    assert without_statements(text) == text


def test_values_lead_to_tools() -> None:
    hub = index(
        tool("tracker", "get_issue", "Get an issue."),
        tool("git", "show", "Show a commit."),
        tool("db", "read_query", "Run a query on the database."),
    )
    assert found(hub, "what about ABC-12")[0] == "tracker_get_issue"
    assert found(hub, "what was 1f3a9bc")[0] == "git_show"
    assert found(hub, "SELECT name, city FROM people WHERE city = 'Rome'")[0] == "db_read_query"


def test_a_value_that_begins_a_clause_is_one_of_the_whole() -> None:
    hub = index(tool("disk", "list_directory", "List a directory."), tool("disk", "copy_file", "Copy a file."))
    assert "disk_list_directory" in found(hub, "copy a file (/tmp copy file) and copy it file at 7 pm")
