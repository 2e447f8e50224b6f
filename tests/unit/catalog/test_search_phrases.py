"""What people say counts as the words of tools."""

import pytest

from mcp_hub.catalog.search.phrases import added, plain, respelled, reworded
from mcp_hub.catalog.search.words import words
from tests.unit.catalog.search_tools import found, index, tool

HUB = index(
    tool("todo", "update_task", "Complete or change a task."),
    tool("chat", "add_reaction", "Add an emoji to a message."),
    tool("chat", "post_message", "Send a message to a channel."),
    tool("tracker", "create_issue", "Create an issue."),
    tool("tracker", "assign_issue", "Assign an issue to a person."),
    tool("maps", "direction_driving", "The route by car between two places."),
    tool("clock", "get_current_time", "The current time in a time zone."),
    tool("clock", "convert_time", "Convert a time between time zones."),
    tool("files", "delete_file", "Delete a file."),
    tool("files", "list_directory_with_sizes", "List a directory with the sizes of its files."),
    tool("files", "read_text_file", "Read the text of a file."),
    tool("files", "edit_file", "Change lines of a text file."),
)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("tick off the dentist", "todo_update_task"),
        ("tick the dentist off", "todo_update_task"),
        ("thumbs up for Ann", "chat_add_reaction"),
        ("tell the team we are done", "chat_post_message"),
        ("file a bug", "tracker_create_issue"),
        ("hand ABC-12 over to Bo", "tracker_assign_issue"),
        ("drive from Rome to Bari", "maps_direction_driving"),
        ("what time is it in Tokyo", "clock_get_current_time"),
        ("whats the time in Tokyo", "clock_get_current_time"),
        ("get rid of the old file", "files_delete_file"),
        ("whats taking up space in this folder", "files_list_directory_with_sizes"),
        ("show me the contents of README.md", "files_read_text_file"),
        ("replace foo with bar in config.ini", "files_edit_file"),
        ("append a line to the log", "files_edit_file"),
        ("route from a to b", "maps_direction_driving"),
    ],
)
def test_speech_finds_the_tool(query: str, name: str) -> None:
    assert found(HUB, query)[0] == name


def row(text: str) -> list[str]:
    return plain(words(text, 100))


def test_words_in_a_gap_stay() -> None:
    assert reworded(row("hand the report over to Bo"), (), is_short=True)[0] == row("assign issue the report to Bo")
    assert reworded(row("hand it to the one who has come over there"), (), is_short=True)[0][0] == "hand"


def test_a_long_description_means_what_it_says() -> None:
    assert reworded(row("file a bug"), (), is_short=False)[0] == row("file a bug")
    assert reworded(row("get rid of it"), (), is_short=False)[0] == row("delete remove it")
    assert added(row("the wiki"), is_short=False) == []


def test_contractions_are_typed_in_three_ways() -> None:
    assert row("what's on") == row("whats on") == ["what", "on"]
    assert row("don't") == row("dont") == ["dont"]


@pytest.mark.parametrize(("query", "name"), [("isssue", "issue"), ("reacton", "reaction"), ("mesage", "message")])
def test_a_mistyped_word_is_found(query: str, name: str) -> None:
    assert all(name in hit for hit in found(HUB, query)[:1])
    assert found(HUB, query)


@pytest.mark.parametrize(
    ("query", "name"), [("thmubs up for Ann", "chat_add_reaction"), ("anounce the release", "chat_post_message")]
)
def test_phrases_are_known_with_a_slip(query: str, name: str) -> None:
    assert found(HUB, query)[0] == name


def test_a_slip_is_in_an_unknown_word_and_no_other_letter() -> None:
    row = words("announce anounce annuonce announcee ennounce Tomales", 9)
    known = {"announc"}
    assert respelled(row, lambda word: word not in known) == ["announc"] * 4 + row[4:]
    assert respelled(["anounc"], lambda word: False) == ["anounc"]
    assert respelled(["anounc"] * 9, lambda word: True).count("announc") == 4


@pytest.mark.parametrize(
    ("typed", "name"), [("jria", "jira"), ("jiira", "jira"), ("slck", "slack"), ("gihub", "github")]
)
def test_a_short_word_is_found_with_a_slip(typed: str, name: str) -> None:
    hub = index(*(tool("desk", f"ask_{word}", "Ask.") for word in ("jira", "slack", "github", "linear")))
    assert found(hub, typed)[:1] == [f"desk_ask_{name}"]


def test_an_english_word_is_not_mistyped() -> None:
    hub = index(tool("a", "list_tables", "List tables."))
    assert found(hub, "cables") == []
    assert found(hub, "tabels") == ["a_list_tables"]


def test_a_word_that_a_tool_has_is_sought_as_it_is() -> None:
    hub = index(
        tool("net", "ping_host", "Ping a host."),
        tool("mail", "empty_trash", "Empty the trash."),
        *(tool("chat", name, "Send a message.") for name in ("send_message", "post_message")),
        tool("files", "delete_file", "Delete a file."),
    )
    assert found(hub, "ping the host")[0] == "net_ping_host"
    assert found(hub, "empty the trash")[0] == "mail_empty_trash"
    assert {"net_ping_host", "chat_send_message", "chat_post_message"} == set(found(hub, "ping Ann")[:3])
