"""What search finds, in which order, and what it says when nothing fits; on a small list of our own."""

import pytest

from tests.unit.catalog.search_tools import ASKED, FOREIGN, TOOLS, found, index, properties, tool

HUB = index(*TOOLS)


@pytest.mark.parametrize(("query", "expected"), ASKED.items())
def test_a_step_finds_its_tool_first(query: str, expected: str) -> None:
    answer = HUB.search(query)
    assert answer[0].id == expected
    assert not answer[0].weak


def test_of_queries_for_other_apps_nearly_all_are_weak() -> None:
    answers = {query: HUB.search(query) for query in FOREIGN}
    strong = [query for query, answer in answers.items() if answer and not answer[0].weak]
    assert len(FOREIGN) >= 30 and len(strong) <= len(FOREIGN) // 8, strong
    assert sum(bool(answer) for answer in answers.values()) >= len(FOREIGN) // 3


@pytest.mark.parametrize("query", ["", "   \n", "?!… --", "how could you be so", "and then of the", "🍰🍰", "a"])
def test_a_query_that_says_nothing_has_no_hits(query: str) -> None:
    assert HUB.search(query) == ()


@pytest.mark.parametrize(
    "query",
    [
        "github_create_issue",
        "GITHUB CREATE-ISSUE",
        "githubCreateIssue",
        "create_issue",
        "createIssue",
        " create.issue ",
    ],
)
def test_a_name_in_any_case_and_with_any_separator_comes_first(query: str) -> None:
    many = [
        tool("x", f"create{n}", "create issue create issue issue create", properties(issue="create")) for n in range(9)
    ]
    first, *_ = index(*many, *TOOLS).search(query)
    assert first.id == "github_create_issue" and not first.weak
    assert first.parts["exact"] > 0


def test_the_exported_name_comes_before_the_servers_own() -> None:
    tools = [tool("a", "send", "send send", exported="a_send"), tool("b", "x", exported="send"), tool("c", "send", "z")]
    assert found(index(*tools), "send")[0] == "send"


@pytest.mark.parametrize("name", ["about", "do", "---", "🍰", "天气", "Ünïcode tool"])
def test_a_name_that_says_nothing_is_found_by_itself(name: str) -> None:
    answer = index(*TOOLS, tool("x", name, "?", exported="x_1")).search(name)
    assert answer[0].id == "x_1" and not answer[0].weak


@pytest.mark.parametrize(
    ("query", "expected"),
    {
        "查询天气": "weather_cn",
        "明天的天气怎么样": "weather_cn",
        "天気を調べる": "weather_ja",
        "날씨를 알려줘": "weather_ko",
        "ابحث عن الطقس": "weather_ar",
        "WETTER für Köln": "weather_de",
        "wetter fur koln": "weather_de",
        "ＷＥＴＴＥＲ": "weather_de",
        "погода завтра": "weather_ru",
        "मौसम": "weather_hi",
    }.items(),
)
def test_other_scripts_are_found(query: str, expected: str) -> None:
    said = {"cn": "查询城市天气预报", "ja": "天気予報を調べる", "ko": "도시의 날씨를 봅니다", "ar": "الطقس في مدينة"}
    said |= {"de": "Wetter für Städte wie Köln", "ru": "Погода в городе", "hi": "शहर का मौसम"}
    tools = [tool("weather", name, f"{text}.", exported=f"weather_{name}") for name, text in said.items()]
    assert found(index(*TOOLS, *tools), query)[0] == expected


def test_near_duplicates_are_shown_once_and_named() -> None:
    text = "Run a query against the database and return the rows."
    twice = [tool(server, "run_query", f"{text} {server}.") for server in ("staging", "live")]
    other = tool("logs", "run_query", "Filter log lines by label over a span of time.")
    hits = index(*twice, other, *TOOLS).search("run a query")
    assert [(hit.id, hit.also) for hit in hits[:2]] == [
        ("staging_run_query", ("live_run_query",)),
        ("logs_run_query", ()),
    ]
    hits = index(*twice, other, *TOOLS).search("run a query on live")
    assert (hits[0].id, hits[0].also) == ("live_run_query", ("staging_run_query",))


def test_near_duplicates_do_not_use_up_the_limit() -> None:
    copies = [tool(f"copy{n}", "find_person", "Find a person by name.") for n in range(150)]
    others = [tool("people", f"person_{word}", f"A person's {word}.") for word in ("age", "home", "job", "cat", "boss")]
    answer = index(*copies, *others).search("find a person", 6)
    assert len(answer) == 6 and len(answer[0].also) == 149


def test_equally_good_tools_for_the_clauses_of_a_query_take_turns() -> None:
    files = [tool("disk", f"find_file_{what}", "Of a disk.") for what in ("alpha", "beta", "gamma")]
    letters = [tool("mail", f"send_letter_{what}", "Of a mail.") for what in ("delta", "kappa", "sigma")]
    hub = index(*files, *letters)
    hits = hub.search("find a file, then send a letter", 4)
    assert [hit.id.split("_")[0] for hit in hits] == ["disk", "mail", "disk", "mail"]
    assert [hit.parts["turn"] < 0 for hit in hits] == [False, False, True, True]
    assert found(hub, "find a file", 3) == [one.id for one in files]


def test_one_server_is_searched_alone() -> None:
    assert set(found(HUB, "files", server="files")) <= {one.id for one in TOOLS if one.server == "files"}
    assert found(HUB, "list requests, issues and files", server="browser")[0] == "browser_network_requests"
    assert HUB.search("list files", server="nobody") == ()
    assert found(HUB, "create_issue", server="git") == []


def test_a_replaced_server_is_found_by_its_new_tools_only() -> None:
    hub = index(*TOOLS)
    hub.put("git", [tool("git", "git_blame", "Who wrote each line.")])
    assert not {"git_git_log", "git_git_commit"} & {*found(hub, "commit history"), *found(hub, "git_log")}
    assert found(hub, "who wrote this line")[0] == "git_git_blame"
    hub.drop("git")
    hub.drop("never there")
    assert found(hub, "who wrote this line") == [] and "git_git_blame" not in found(hub, "git_git_blame")


def test_what_is_not_in_the_index_does_not_show_in_scores_or_guesses() -> None:
    never = index(*TOOLS)
    later = index(*TOOLS, tool("secret", "launch_rockets", "Launch scrennshow, scrennshop, commit history."))
    assert {found(later, query)[0] for query in ("launch roket", "commit rockets")} == {"secret_launch_rockets"}
    later.drop("secret")
    for query in ("launch rockets", "launch roket", "commit history", "scrennshot", "secret"):
        assert later.search(query) == never.search(query)


def test_aliases_are_followed_when_asked_for() -> None:
    assert found(HUB, "cabinet") == []
    assert found(index(*TOOLS, cabinet=("directory",)), "cabinet")[0] == "files_listDirectory"
    assert found(index(*TOOLS, **{"merge request": ("pull",)}), "open merge request")[0].endswith("pull_request")
    assert found(index(*TOOLS, **{"merge request": ("pull",)}), "merge branch") == found(HUB, "merge branch")
    assert found(index(*TOOLS, **{"how": ("history",)}), "how")[0] == "git_git_log"
    assert found(index(*TOOLS, **{"": ("file",), "?": ("!",), "x": ()}), "cabinet") == []


def test_a_description_stuffed_with_words_gains_little() -> None:
    stuffed = tool("x", "helper", "create issue " * 500)
    assert found(index(stuffed, *TOOLS), "create a new issue")[0] == "github_create_issue"


@pytest.mark.parametrize("limit", [0, -1, 1, 3, 10**9])
def test_no_more_than_the_limit(limit: int) -> None:
    assert len(found(HUB, "list files, issues and requests of the page", limit)) <= max(limit, 0)


SPOKEN = [
    tool("time", "get_current_time", "Get current time in a specific timezone", properties(timezone="IANA name")),
    tool(
        "time", "convert_time", "Convert time between timezones",
        properties(
            source_timezone="such as 'America/New_York'", time="Time in 24-hour format",
            target_timezone="such as 'Asia/Tokyo'",
        ),
    ),
    tool("notes", "create_note", "Create a note."),
    tool("notes", "delete_note", "Delete a note."),
    tool("notes", "list_notes", "List notes."),
    tool("home", "enable_alarm", "Enable the alarm."),
    tool("home", "disable_alarm", "Disable the alarm."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what time is it in Tokyo", "time_get_current_time"),
        ("What time is it?", "time_get_current_time"),
        ("What's the time in Tokyo right now?", "time_get_current_time"),
        ("tell me the time", "time_get_current_time"),
        ("convert 9 am in New York to Tokyo time", "time_convert_time"),
        ("get rid of that note", "notes_delete_note"),
        ("throw away the note", "notes_delete_note"),
        ("write down a note", "notes_create_note"),
        ("what are the notes", "notes_list_notes"),
        ("turn off the alarm", "home_disable_alarm"),
        ("turn on the alarm", "home_enable_alarm"),
        ("screnshot", "browser_take_screenshot"),
        ("screen shot", "browser_take_screenshot"),
        ("directry", "files_listDirectory"),
        ("repositories of an organisation", "github_fork_repository"),
        ("Git Hub issue creation", "github_create_issue"),
    ],
)
def test_phrases_of_people_and_near_spellings_find_the_tool(query: str, expected: str) -> None:
    spoken = {tool.server for tool in SPOKEN}
    assert found(index(*SPOKEN) if expected.partition("_")[0] in spoken else HUB, query)[0] == expected
