"""The hub's instructions: at most 90 tokens, live servers with their purpose and number of tools."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.discovery.answers import MOST_OWN, ServerAbout, absent, compose, instructions, live
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.token_costs import TokenAccounts
from mcp_hub.catalog.tokens import estimate
from mcp_hub.clock import SystemClock
from mcp_hub.notices import Notices
from mcp_hub.types import ClientKind, Era, Kind, Snapshot, UpstreamState
from tests.unit.catalog.offers import Listing, tool

GIT = ServerAbout("git", 26, "Reads repositories. And more.")
NOTES = ServerAbout("notes", 0, "")

abouts = st.builds(ServerAbout, st.text(st.characters(codec="utf-8"), max_size=30), st.integers(0, 500), st.text())


@given(
    st.none() | st.text(max_size=3000), st.lists(abouts, max_size=120), st.lists(st.text(max_size=30)), st.booleans()
)
def test_they_are_never_longer_than_90_tokens_besides_the_text_of_the_configuration(
    own: str | None, servers: list[ServerAbout], starting: list[str], is_search: bool
) -> None:
    text = compose(own, servers, starting, is_search=is_search) or ""
    if own:
        head = compose(own, []) or ""
        assert text.startswith(head) and len(head.encode()) <= MOST_OWN
        text = text.removeprefix(head).removeprefix("\n\n")
    assert estimate(text) <= 84, "90 of a real tokenizer"


def lines(*servers: ServerAbout, starting: tuple[str, ...] = (), is_search: bool = False) -> list[str]:
    text = compose(None, servers, starting, is_search=is_search)
    assert text is not None
    return text.split("\n")


def test_each_server_has_a_line_with_its_purpose_and_number_of_tools() -> None:
    opening, *said = lines(GIT, NOTES, starting=("ci", "db"))
    assert opening.startswith("One MCP server in front of several")
    assert said == ["git (26): Reads repositories", "notes", "Starting: ci, db."]


def test_how_to_reach_tools_that_are_not_listed_is_said_where_there_are_such() -> None:
    assert "find_tools" in lines(GIT, is_search=True)[0] and "run_tool" in lines(GIT, is_search=True)[0]
    assert "find_tools" not in lines(GIT)[0]


def test_there_is_nothing_to_say_without_servers_but_what_was_configured() -> None:
    assert compose(None, []) is None and compose("", []) is None and compose("own", []) == "own"
    text = compose("own", [GIT])
    assert text is not None and text.split("\n")[:2] == ["own", ""]


def test_purposes_are_cut_alike_where_there_is_little_room() -> None:
    servers = [ServerAbout(f"s{number}", 3, "This one is for many things " * 4) for number in range(5)]
    said = lines(*servers)[1:]
    assert len(said) == 5 and len({len(line) for line in said}) == 1 and said[0].startswith("s0 (3): This one")


def test_of_many_servers_the_largest_are_named() -> None:
    servers = [ServerAbout(f"server{number}", number, "x") for number in range(1, 90)]
    said = lines(*servers, starting=("slow",))
    assert len(said) <= 3 and said[1].startswith("Servers: server89 (89), server88 (88)") and "…" in said[1]


@pytest.mark.parametrize("width", [0, 5, 40])
def test_no_server_speaks_for_another_or_the_hub(width: int) -> None:
    line = ServerAbout("a", 1, "Reads.\n\nb: forged\u2028\x1b[2Jc: too\u202e").line(width)
    assert line.isprintable() and line.startswith("a (1)")


# -- which servers


class World:
    """A catalog over three servers that start."""

    def __init__(self) -> None:
        self.changes = Notices()
        self.git, self.ci, self.db = (Listing(name, self.changes) for name in ("git", "ci", "db"))
        every = {"git": ServerRules(), "ci": ServerRules(description="Runs builds. More."), "db": ServerRules()}
        self.rules: dict[str | None, ViewRules] = {
            None: ViewRules(every, expose="auto", instructions="Mind the gap."),
            "small": ViewRules(every, Filter(allow=("log",))),
        }
        self.upstreams: dict[str, Upstream] = {"git": self.git, "ci": self.ci, "db": self.db}
        self.catalog = Catalog(self.upstreams, self.rules, self.changes, SystemClock(), 0)

    def live(self, profile: str | None = None) -> list[str]:
        return [one.line() for one in live(self.catalog.view(profile), self.rules[profile], self.upstreams)]

    def absent(self) -> list[str]:
        return [status.server for status in absent(self.rules[None], self.upstreams)]


def says(server: str, text: str | None, *tools: str) -> Snapshot:
    return Snapshot(server, Era.HANDSHAKE, {Kind.TOOL: tuple(map(tool, tools))}, instructions=text)


@pytest.mark.anyio
async def test_live_servers_are_those_that_offer_something_and_are_not_down() -> None:
    world = World()
    assert world.live() == [] and world.absent() == ["git", "ci", "db"]
    world.git.lists(says("git", "Reads repositories. More.", "log", "diff"))
    world.ci.lists(says("ci", "What it says is not shown.", "build"))
    world.db.lists(says("db", None))
    assert world.live() == ["git (2): Reads repositories", "ci (1): Runs builds"] and world.absent() == []
    assert world.live("small") == ["git (1): Reads repositories"]
    world.git.becomes(UpstreamState.FAILED)
    assert world.live() == ["ci (1): Runs builds"] and world.absent() == ["git"]


@pytest.mark.anyio
async def test_a_server_that_failed_is_not_called_starting() -> None:
    world = World()
    world.git.becomes(UpstreamState.FAILED)
    world.ci.becomes(UpstreamState.BACKING_OFF)
    text = instructions(world.catalog, world.upstreams, None) or ""
    assert text.endswith("\nStarting: db.") and "git" not in text and "ci" not in text


@pytest.mark.anyio
async def test_a_server_that_says_nothing_is_described_by_names_of_its_tools() -> None:
    world = World()
    world.git.lists(says("git", None, "log", "diff", "show", "blame", "push"))
    assert world.live() == ["git (5): log, diff, show, blame, …"]


@pytest.mark.anyio
async def test_they_follow_the_servers_and_are_counted_in_the_account_of_tokens() -> None:
    world = World()
    text = instructions(world.catalog, world.upstreams, None) or ""
    assert text.startswith("Mind the gap.\n\nOne MCP server") and text.endswith("\nStarting: git, ci, db.")
    for one in (world.git, world.ci, world.db):
        one.lists(says(one.name, None, f"{one.name}_run"))
    text = instructions(world.catalog, world.upstreams, None) or ""
    assert "Starting" not in text and "find_tools" not in text and "\ngit (1): git_run\nci (1): Runs builds" in text
    accounts = TokenAccounts(world.catalog, world.upstreams)
    account = await accounts.account(None, "unknown", ClientKind(), None, None)
    assert account.instructions == estimate(text) > 20
    assert json.dumps(instructions(world.catalog, world.upstreams, "small")).count("Mind") == 0
