"""A small hub of our own to be searched: four developer servers, and requests that are and are not for them."""

from typing import Any

from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import SearchIndex


def tool(
    server: str, name: str, description: str = "", schema: Any = None, *, exported: str | None = None
) -> Searchable:
    return Searchable(exported or f"{server}_{name}", server, name, description, {} if schema is None else schema)


def properties(**notes: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"description": note} for name, note in notes.items()}}


def index(*tools: Searchable, **aliases: tuple[str, ...]) -> SearchIndex:
    made = SearchIndex(aliases)
    for server in dict.fromkeys(one.server for one in tools):
        made.put(server, [one for one in tools if one.server == server])
    return made


def found(made: SearchIndex, query: str, limit: int = 8, server: str | None = None) -> list[str]:
    return [hit.id for hit in made.search(query, limit, server)]


TOOLS = [
    tool("github", "create_issue", "Create a new issue in a GitHub repository.", properties(title="", labels="")),
    tool("github", "list_issues", "List the issues of a repository, with filters.", properties(state="open or closed")),
    tool("github", "add_issue_comment", "Add a comment to an existing issue."),
    tool("github", "create_pull_request", "Open a new pull request for a branch.", properties(head="", base="")),
    tool("github", "merge_pull_request", "Merge a pull request."),
    tool("github", "search_code", "Search for code across repositories.", properties(query="what to look for")),
    tool("github", "fork_repository", "Fork a repository to your account or organization."),
    tool("git", "git_commit", "Record the staged changes.", properties(message="why the change was made")),
    tool("git", "git_log", "Show the commit history.", properties(max_count="how many commits")),
    tool("git", "git_diff", "Show differences between two branches or commits."),
    tool("git", "git_checkout", "Switch to another branch."),
    tool("git", "git_add", "Stage files for the next commit."),
    tool("files", "readTextFile", "Read the complete contents of a file as text.", properties(path="the file to read")),
    tool("files", "writeFile", "Write text to a file, replacing what is there.", properties(path="", content="")),
    tool("files", "moveFile", "Move or rename a file.", properties(source="", destination="")),
    tool("files", "listDirectory", "List what is in a directory, with sizes."),
    tool("files", "searchFiles", "Find files whose name matches a pattern."),
    tool("browser", "navigate", "Go to a URL.", properties(url="the address of the page")),
    tool("browser", "click", "Click an element of the page.", properties(selector="CSS selector of the element")),
    tool("browser", "take_screenshot", "Take a picture of the current page."),
    tool("browser", "type_text", "Type text into an input field."),
    tool("browser", "console_messages", "Get the messages on the console of the page."),
    tool("browser", "network_requests", "List the requests that the page has made over the network."),
    tool("browser", "emulate_media", "Turn on a light or dark scheme of colours, or a level of zoom of your choice."),
    tool("monitor", "get_trace", "Show what a call has spent its time on, phase by phase."),
    tool("monitor", "find_errors", "Find errors near a release, by level, tag, room and user."),
    tool("monitor", "plan_release", "Plan a release train, best with the first and the last commit; tells who won."),
    tool("monitor", "follow_feed", "Follow the feed of events as they play out, as text, with a price for each."),
]

ASKED = {
    "create a GitHub issue": "github_create_issue",
    "open a pull request for my branch": "github_create_pull_request",
    "merge the pull request": "github_merge_pull_request",
    "comment on an issue": "github_add_issue_comment",
    "which issues are still open in the repository": "github_list_issues",
    "search code": "github_search_code",
    "commit my changes": "git_git_commit",
    "show the history of commits": "git_git_log",
    "differences between two branches": "git_git_diff",
    "stage the files": "git_git_add",
    "read a file": "files_readTextFile",
    "write text to a file": "files_writeFile",
    "rename a file": "files_moveFile",
    "list the directory": "files_listDirectory",
    "screenshot of the page": "browser_take_screenshot",
    "click the button": "browser_click",
    "requests over the network": "browser_network_requests",
    "console messages": "browser_console_messages",
}

FOREIGN = (
    """
bake a cake recipe|book a flight to Paris|what is the weather in Tokyo|play some jazz music|order a pizza with cheese
find a hotel near the beach|translate this sentence into French|stock price of Apple|horoscope for Leo
nutrition facts of bananas|send flowers to my mother|turn on the living room lights|how tall is Mount Everest
schedule a dentist appointment|who won the football world cup|convert 100 dollars to euros|tell me a joke
best restaurants in Rome|workout plan for beginners|rent a car in Los Angeles|lyrics of a Beatles song
diagnose my headache|train timetable from Berlin to Munich|cheap apartments in Amsterdam|symptoms of the flu
calculate my mortgage payment|movie showtimes tonight|paint a landscape in watercolour|adopt a puppy|feed the cat
knit a sweater|tax deductions for freelancers|phase of the moon tomorrow|call my grandmother|remove a red wine stain
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
