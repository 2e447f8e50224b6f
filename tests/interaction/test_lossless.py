"""What crosses the hub arrives as it was sent, or changed as docs/relay.md says: docs/lossless.md has every case."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.interaction.json_text import changes, members
from tests.interaction.lossless import DOCUMENT, SECTIONS, Found, measure, render
from tests.interaction.lossless_others import DEFINITIONS
from tests.interaction.lossless_places import Place, places
from tests.interaction.lossless_reasons import RELAY

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def groups(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[list[list[Place]]]:
    async with places(tmp_path_factory.mktemp("lossless"), DEFINITIONS) as found:
        yield found


@pytest.fixture(scope="module")
async def direct(groups: list[list[Place]]) -> Found:
    return await measure(groups)


async def test_what_crosses_the_hub_is_as_documented(direct: Found) -> None:
    found = render(direct)
    print(found)
    assert found == DOCUMENT.read_text("utf-8"), "run `python -m tests.interaction.lossless` and read what changed"


CALLS = ("Results of tools", "Resource URIs", "Errors", "Requests, as the server gets them", "Notifications")
REFUSED = "-32602"
"""The row of a server that refuses arguments."""


@pytest.mark.proof
async def test_run_tool_changes_nothing_but_what_is_said_of_refused_arguments(
    direct: Found, groups: list[list[Place]]
) -> None:
    places = [[replace(place, runs_tools=True) for place in group] for group in groups]
    found = await measure(places, {name: SECTIONS[name] for name in CALLS})
    for (section, name), cells in found.items():
        for place, got in cells.items():
            before = direct[section, name][replace(place, runs_tools=False)]
            if (section, name) == ("Errors", REFUSED):
                assert before == [] and got is not None
                (change,) = got
                assert change.startswith('`message` `"no"` → `"no\\n\\n{\\"name\\":'), (change, place)
            else:
                assert got == before, (section, name, place)


def test_the_reasons_that_name_the_rules_of_the_relay_are_such_rules() -> None:
    page = DOCUMENT.with_name("relay.md").read_text("utf-8")
    assert {reason.rule for reason in RELAY} <= set(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))


@pytest.mark.parametrize(
    ("sent", "got", "found"),
    [
        ('{"a":1.0}', '{"a":1.0}', []),
        ('{"a":1.0}', '{"a":1}', ["`a` `1.0` → `1`"]),
        ('{"a":"é"}', r'{"a":"\u00e9"}', [r'`a` `"é"` → `"\u00e9"`']),
        ('{"a":1,"b":2}', '{"b":2,"a":1}', ["members in another order"]),
        ('{"a":1,"a":2}', '{"a":2}', ["of members of one name the last is kept"]),
        ('{"a":{"b":[1, 2]}}', '{"a":{"b":[1,2]}}', ["white space between tokens"]),
        ('{"a":{"b":[1]}}', '{"c":0,"a":{"b":[1,2]}}', ["`c` added", "`a.b` `[1]` → `[1,2]`"]),
        ('{"a":{"b":1}}', '{"a":{}}', ["`a.b` dropped"]),
        ('{"a":{"b":1}}', '{"a":"{}"}', ['`a` `{"b":1}` → `"{}"`']),
        (r'"\ud83d"', r'"\ufffd"', ["lone surrogates → U+FFFD"]),
        (r'"\ud83d\ude00"', r'"\ufffd\ufffd"', [r'`value` `"\ud83d\ude00"` → `"\ufffd\ufffd"`']),
    ],
)
def test_changes_are_found_to_the_byte(sent: str, got: str, found: list[str]) -> None:
    assert changes(sent, got) == found


def test_members_are_kept_as_they_are_spelled() -> None:
    assert members('{ "a" : 1.10 , "b":[ ],"a":"\\u0041" }') == [("a", "1.10"), ("b", "[ ]"), ("a", '"\\u0041"')]
