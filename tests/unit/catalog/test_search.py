"""What search finds, in which order, and what it says when nothing fits; on a small list of our own."""

import math
from typing import Any

import pytest

from mcp_hub.catalog.search import scores
from mcp_hub.catalog.search.ranker import SearchAnswer, SearchIndex, build
from tests.unit.catalog.search_tools import ASKED, FOREIGN, TOOLS, found, index, properties, tool

HUB = index(*TOOLS)


@pytest.mark.parametrize(("query", "expected"), ASKED.items())
def test_a_step_finds_its_tool_first(query: str, expected: str) -> None:
    answer = HUB.search(query)
    assert answer.hits[0].id == expected
    assert not answer.is_weak


def test_of_queries_for_other_apps_nearly_all_are_weak() -> None:
    answers = {query: HUB.search(query) for query in FOREIGN}
    strong = [query for query, answer in answers.items() if not answer.is_weak]
    assert len(FOREIGN) >= 30 and len(strong) <= len(FOREIGN) // 8, strong
    assert sum(bool(answer.hits) for answer in answers.values()) >= len(FOREIGN) // 3


@pytest.mark.parametrize("query", ["", "   \n", "?!… --", "how could you be so", "and then of the", "🍰🍰", "a"])
def test_a_query_that_says_nothing_has_no_hits(query: str) -> None:
    assert HUB.search(query) == SearchAnswer((), is_weak=True)


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
    (first, *_), is_weak = (answer := index(*many, *TOOLS).search(query)).hits, answer.is_weak
    assert first.id == "github_create_issue" and not is_weak
    assert first.parts["exact"] > 0


def test_the_exported_name_comes_before_the_servers_own() -> None:
    tools = [tool("a", "send", "send send", exported="a_send"), tool("b", "x", exported="send"), tool("c", "send", "z")]
    assert found(index(*tools), "send")[0] == "send"


@pytest.mark.parametrize("name", ["about", "do", "---", "🍰", "天气", "Ünïcode tool"])
def test_a_name_that_says_nothing_is_found_by_itself(name: str) -> None:
    answer = index(*TOOLS, tool("x", name, "?", exported="x_1")).search(name)
    assert answer.hits[0].id == "x_1" and not answer.is_weak


def test_a_nameless_tool_is_not_what_an_empty_query_names() -> None:
    assert found(index(tool("x", "", exported="")), "") == []


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


@pytest.mark.parametrize(
    ("query", "expected"),
    {
        "screnshot": "browser_take_screenshot",
        "screen shot": "browser_take_screenshot",
        "directry": "files_listDirectory",
        "repositories of an organisation": "github_fork_repository",
        "Git Hub issue creation": "github_create_issue",
    }.items(),
)
def test_near_spellings_are_found(query: str, expected: str) -> None:
    assert found(HUB, query)[0] == expected


def test_each_step_of_a_long_request_is_found() -> None:
    query = (
        "I am getting ready for the demo on Friday and would like some help. Please take a screenshot of the start "
        "page, write what you see as text to a file, and then open a pull request with it. Thanks a lot!"
    )
    assert {"browser_take_screenshot", "files_writeFile", "github_create_pull_request"} <= set(found(HUB, query, 5))


def test_a_named_app_comes_before_another_with_the_same_tool() -> None:
    hub = index(
        *(tool(app, "create_page", f"Create a page, as in {other}.") for app, other in [("a", "b"), ("b", "a")])
    )
    hub.put("notion", [tool("notion", "create_page", "Make a new page under a parent.")])
    hub.put("confluence", [tool("confluence", "create_page", "Make a page in some space.")])
    assert found(hub, "create a Notion page")[0] == "notion_create_page"
    assert found(hub, "create a page in Confluence")[0] == "confluence_create_page"


def test_a_server_that_the_query_names_fully_gains() -> None:
    hub = index(*TOOLS, tool("Ice Cream", "order", "Vanilla."), tool("Ice Skating", "book", "Rink."))
    plain, partly, fully = (hub.search(query).hits[0].parts for query in ("vanilla", "ice rink", "order ice cream"))
    assert plain["server"] / plain["words"] < partly["server"] / partly["words"] < fully["server"] / fully["words"]


def test_tools_of_a_server_whose_other_tools_fit_come_first() -> None:
    calendar = [tool("a", name, "Calendar event.") for name in ("get_event", "move_event", "add")]
    others = [
        tool("b", name, text) for name, text in [("add", "Calendar event!"), ("sum", "Numbers."), ("sine", "Angle.")]
    ]
    assert found(index(*others, *calendar), "add calendar event", 2)[0] == "a_add"


def test_near_duplicates_are_shown_once_and_named() -> None:
    text = "Run a query against the database and return the rows."
    twice = [tool(server, "run_query", f"{text} {server}.") for server in ("staging", "live")]
    other = tool("logs", "run_query", "Filter log lines by label over a span of time.")
    hits = index(*twice, other, *TOOLS).search("run a query").hits
    assert [(hit.id, hit.also) for hit in hits[:2]] == [
        ("staging_run_query", ("live_run_query",)),
        ("logs_run_query", ()),
    ]
    hits = index(*twice, other, *TOOLS).search("run a query on live").hits
    assert (hits[0].id, hits[0].also) == ("live_run_query", ("staging_run_query",))


def test_a_tool_stands_under_one_hit_only() -> None:
    rows = [" ".join(f"w{chr(97 + n)}" for n in range(start, start + 20)) for start in (0, 2, 4)]
    hits = index(*(tool(f"server{n}", "look", row) for n, row in enumerate(rows))).search("look at wa").hits
    assert [(hit.id, hit.also) for hit in hits] == [("server0_look", ("server1_look",)), ("server2_look", ())]


def test_near_duplicates_do_not_use_up_the_limit() -> None:
    copies = [tool(f"copy{n}", "find_person", "Find a person by name.") for n in range(150)]
    others = [tool("people", f"person_{word}", f"A person's {word}.") for word in ("age", "home", "job", "cat", "boss")]
    answer = index(*copies, *others).search("find a person", 6)
    assert len(answer.hits) == 6 and len(answer.hits[0].also) == 149


def test_one_server_is_searched_alone() -> None:
    assert set(found(HUB, "files", server="files")) <= {one.id for one in TOOLS if one.server == "files"}
    assert found(HUB, "list requests, issues and files", server="browser")[0] == "browser_network_requests"
    assert HUB.search("list files", server="nobody") == SearchAnswer((), is_weak=True)
    assert found(HUB, "create_issue", server="git") == []


def test_one_server_is_searched_even_for_words_that_most_tools_have() -> None:
    crowd = [tool("crowd", f"rare{n}", "rare common") for n in range(900)]
    more = [tool("more", f"common{n}", "common") for n in range(900)]
    hub = index(*crowd, *more, tool("quiet", "common_thing", "common"))
    assert found(hub, "rare common", server="quiet") == ["quiet_common_thing"]


def test_ties_are_broken_by_server_and_then_by_tool() -> None:
    names = ["delta", "alpha", "charlie", "bravo"]
    hub = SearchIndex()
    for server in ("z", "y"):
        hub.put(server, [tool(server, name, f"Something about cheese {name}.") for name in names])
    expected = [f"{server}_{name}" for server in ("z", "y") for name in names]
    shown = [one for hit in hub.search("cheese", 8).hits for one in (hit.id, *hit.also)]
    assert [one for one in shown if one.startswith("z")] == expected[:4]
    hub.put("z", [tool("z", name, f"Something about cheese {name}.") for name in names])
    assert [one for hit in hub.search("cheese", 8).hits for one in (hit.id, *hit.also)] == shown


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
    assert found(HUB, "folder") == []
    assert found(index(*TOOLS, folder=("directory",)), "folder")[0] == "files_listDirectory"
    assert found(index(*TOOLS, **{"merge request": ("pull",)}), "open merge request")[0].endswith("pull_request")
    assert found(index(*TOOLS, **{"merge request": ("pull",)}), "merge branch") == found(HUB, "merge branch")
    assert found(index(*TOOLS, **{"how": ("history",)}), "how")[0] == "git_git_log"
    assert found(index(*TOOLS, **{"": ("file",), "?": ("!",), "x": ()}), "folder") == []


def test_parts_add_up_and_scores_fall() -> None:
    for query in (*ASKED, "create_issue", "take a screenshot of the page, and then write text to a file"):
        hits = HUB.search(query).hits
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        for hit in hits:
            assert math.isclose(hit.score, math.fsum(hit.parts.values()))
            assert set(hit.parts) == {"words", "name", "pairs", "server", "exact"}


def test_words_side_by_side_count() -> None:
    tools = [tool("a", "x", "Request a pull of the list."), tool("a", "y", "Pull request for the list.")]
    hits = index(*tools).search("pull request").hits
    assert hits[0].id == "a_y" and hits[0].parts["pairs"] > 0 == hits[1].parts["pairs"]


def test_a_name_that_the_query_covers_fully_counts_more() -> None:
    tools = [tool("a", "list_users_roles_groups", "Shows them."), tool("a", "list_users", "Shows them.")]
    hits = index(*tools).search("list users").hits
    assert hits[0].id == "a_list_users" and hits[0].parts["name"] > hits[1].parts["name"] > 0


def test_one_step_that_fits_well_counts_more_than_a_little_of_each() -> None:
    tools = [tool("a", "overview", "Report, contract, invoice."), tool("a", "edit", "Scale photos.")]
    query = "scale the photos, then mail the report, shred the contract, and pay the invoice"
    assert found(index(*tools, tool("b", "verbs", "Mail, shred, pay.")), query)[0] == "a_edit"


def test_words_that_most_tools_have_are_left_out_of_large_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = [tool("a", f"common{n}", "common") for n in range(8)]
    hub = index(*tools, tool("b", "rare", "common"))
    assert len(found(hub, "rare common", 20)) == 9
    monkeypatch.setattr(scores, "MAX_VISITS", 3)
    assert found(hub, "rare common", 20) == ["b_rare"]
    assert len(found(hub, "common", 20)) == 9


def test_a_description_stuffed_with_words_gains_little() -> None:
    stuffed = tool("x", "helper", "create issue " * 500)
    assert found(index(stuffed, *TOOLS), "create a new issue")[0] == "github_create_issue"


@pytest.mark.parametrize("limit", [0, -1, 1, 3, 10**9])
def test_no_more_than_the_limit(limit: int) -> None:
    assert len(found(HUB, "list files, issues and requests of the page", limit)) <= max(limit, 0)


@pytest.mark.parametrize(
    "query",
    [
        "create issue " * 800,
        "x" * 10_000,
        "." * 10_000,
        "a,b " * 2_500,
        "界" * 10_000,
        "Ab" * 5_000,
        "ﷺ" * 10_000,
        "\0" * 99,
    ],
    ids=["words", "letter", "dots", "clauses", "dense", "cased", "expanding", "zeros"],
)
def test_queries_of_any_length_are_answered(query: str) -> None:
    assert len(HUB.search(query).hits) <= 8


def test_a_ranker_is_built_from_listed_tools() -> None:
    listed: list[dict[str, Any]] = [
        {"id": "one/bare", "server": "one", "name": "bare", "description": None, "inputSchema": None},
        {"id": "two/send_mail", "server": "two", "name": "send_mail", "description": "Sends mail.", "inputSchema": {}},
        {"id": "six/send_mail", "server": "six", "name": "send_mail", "description": "Sends mail.", "inputSchema": {}},
    ]
    ranker = build(listed)
    assert ranker.rank("send a mail", 5) == ["two/send_mail"] and ranker.rank("bare", 5) == ["one/bare"]
