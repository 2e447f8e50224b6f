"""Values of a query count as what tools call them."""

import pytest

from mcp_hub.catalog.search.queries import kinds
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
    ],
)
def test_a_value_is_of_its_kind(text: str, kind: str) -> None:
    assert list(kinds(text)) == words(kind, 2)


@pytest.mark.parametrize(
    "text", ["", "list the open issues", "version 3.10.12", "top 10 of 1,000", "you may go", "e.g. it"]
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
