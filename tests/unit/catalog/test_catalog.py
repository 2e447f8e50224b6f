"""The current view and when a list may be answered, in virtual time."""

import asyncio

import pytest
import structlog

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import CALL_WAIT, Catalog
from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.notices import Notices
from mcp_hub.session_views import uri_settled
from mcp_hub.types import ClientKind, Era, Kind, Snapshot, UpstreamState
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual
from tests.unit.catalog.offers import Listing, names, offer

WAIT = 10.0


class World:
    """A catalog over two upstreams that have just been started."""

    def __init__(self, before: float = 0.0) -> None:
        """`before`: for how many seconds the process has run."""
        self.changes = Notices()
        self.git, self.ci = Listing("git", self.changes), Listing("ci", self.changes)
        every = {"git": ServerRules("git"), "ci": ServerRules("ci")}
        rules = {None: ViewRules(every), "small": ViewRules(every, Filter(allow=("ci_*",)), shared=False)}
        upstreams: dict[str, Upstream] = {"git": self.git, "ci": self.ci}
        self.catalog = Catalog(upstreams, rules, self.changes, LoopClock(), WAIT, started=LoopClock().now() - before)

    def names(self, profile: str | None = None) -> list[str]:
        return names(self.catalog.view(profile))


@virtual
async def test_definitions_that_are_left_out_are_logged_once() -> None:
    world = World()
    unfit = [b'{"name":"t%d","inputSchema":7}' % n for n in range(30)]
    world.git.lists(offer("git", *unfit, b'{"name":"\\u202eok","inputSchema":7}'))
    with structlog.testing.capture_logs() as logs:
        assert world.names() == world.names("small") == []
        world.ci.lists(offer("ci", "build"))
        assert world.names() == ["ci_build"]
        (line,) = logs
        assert (line["event"], line["upstream"], line["count"]) == ("definitions_left_out", "git", 31)
        assert len(line["which"]) == 20 and line["which"][0].startswith("tool t0 is left out: ")
        world.git.lists(offer("git", *unfit, b'{"name":"\\u202eother","inputSchema":7}'))
        world.names()
        assert logs[1]["count"] == 1 and logs[1]["which"][0].startswith("tool <U+202E>other is left out: ")


@virtual
async def test_the_view_follows_what_is_offered_and_each_profile_has_its_own() -> None:
    world = World()
    assert world.names() == []
    world.ci.lists(offer("ci", "build"))
    world.git.lists(offer("git", "log"))
    assert world.names() == ["git_log", "ci_build"] and world.names("small") == ["ci_build"]
    world.git.lists(offer("git", "log", "diff"))
    assert world.names() == ["git_log", "git_diff", "ci_build"]
    with pytest.raises(KeyError):
        world.names("unconfigured")


@virtual
async def test_a_view_is_built_once_until_what_is_offered_differs() -> None:
    world = World()
    world.git.lists(offer("git", "log"))
    view, version = world.catalog.view(None), world.catalog.version
    assert world.catalog.view(None) is view
    world.git.becomes(UpstreamState.BACKING_OFF)
    assert world.catalog.version > version
    assert world.catalog.view(None) is view, "a state is not in the list"
    world.git.lists(offer("git", "log"))
    assert world.catalog.view(None) is view, "equal content is no change"
    world.git.lists(offer("git", "diff"))
    assert world.catalog.view(None) is not view


@pytest.mark.parametrize("name", ["git_log", "git-log", "GIT_log", "git", "git_" + "x" * 10**5])
@virtual
async def test_a_name_belongs_to_the_server_of_its_prefix_until_that_one_is_listed(name: str) -> None:
    world = World()
    world.ci.lists(offer("ci", "build"))
    found = world.catalog.unlisted(None, name)
    assert found is not None and (found.server, found.state) == ("git", UpstreamState.STARTING)
    world.git.lists(offer("git", "log"))
    assert world.catalog.unlisted(None, name) is None


@virtual
async def test_only_servers_of_the_profile_and_the_longest_prefix_count() -> None:
    changes = Notices()
    servers = {name: Listing(name, changes) for name in ("git", "hub", "bare", "gitlab")}
    rules = {"git": ServerRules("git"), "hub": ServerRules("git-hub"), "bare": ServerRules(None)}
    upstreams: dict[str, Upstream] = {**servers}
    catalog = Catalog(upstreams, {None: ViewRules(rules)}, changes, LoopClock(), WAIT)

    def of(name: str) -> str | None:
        found = catalog.unlisted(None, name)
        return found.server if found is not None else None

    names = ["git_log", "git-hub_log", "gitlab_log", "bare_log", "gi", ""]
    assert [of(name) for name in names] == ["git", "hub", None, None, None, None]
    servers["hub"].lists(offer("hub", "log"))
    assert of("git-hub_lgo") is None and of("git_log") == "git"


async def waited(world: World, client: ClientKind | None = None) -> float:
    """How long a list had to wait."""
    began = LoopClock().now()
    await world.catalog.settled(client)
    return LoopClock().now() - began


@virtual
async def test_a_list_waits_for_all_that_are_on_their_first_way_up() -> None:
    world = World()
    assert not world.catalog.is_settled()
    listing = asyncio.create_task(waited(world))
    await sleep(1)
    world.git.lists(offer("git", "log"))
    await sleep(1)
    assert not listing.done()
    world.ci.lists(offer("ci", "build"))
    assert await listing == 2
    assert world.catalog.is_settled() and await waited(world) == 0


@pytest.mark.parametrize("state", [UpstreamState.BACKING_OFF, UpstreamState.FAILED, UpstreamState.DISABLED])
@virtual
async def test_a_server_that_has_failed_its_first_start_is_not_waited_for(state: UpstreamState) -> None:
    world = World()
    listing = asyncio.create_task(waited(world))
    world.git.lists(offer("git", "log"))
    await sleep(3)
    world.ci.becomes(state)
    assert await listing == 3


@virtual
async def test_a_list_waits_only_so_long_after_the_start_and_late_ones_not_at_all() -> None:
    world = World()
    await sleep(WAIT - 4)
    assert await waited(world) == pytest.approx(4)
    assert world.catalog.is_settled() and await waited(world) == 0


@virtual
async def test_each_kind_of_client_waits_for_its_own_time_since_the_process_was_started() -> None:
    world = World(before=1.5)
    patient, quick, usual = ClientKind(first_list_wait=20.0), ClientKind(first_list_wait=3.5), ClientKind()
    assert await waited(world, quick) == pytest.approx(2.0)
    assert world.catalog.is_settled(quick) and not world.catalog.is_settled(usual)
    assert await waited(world, usual) == pytest.approx(WAIT - 3.5)
    listing = asyncio.create_task(waited(world, patient))
    await sleep(1)
    for server in (world.git, world.ci):
        server.becomes(UpstreamState.FAILED)
    assert await listing == pytest.approx(1.0)


@pytest.mark.parametrize("keys", [("git", "ci", "nobody"), ("a:there", "a:nowhere", "a:nowhere")], ids=["call", "read"])
@virtual
async def test_call_waits_for_its_own_server_and_a_read_for_the_one_that_has_it_longer_than_a_list(
    keys: tuple[str, str, str],
) -> None:
    world, (there, missing, unknown) = World(), keys
    await sleep(WAIT)

    async def waited_for(key: str) -> float:
        began = LoopClock().now()
        await (uri_settled(world.catalog, None, key) if ":" in key else world.catalog.settled(servers=(key,)))
        return LoopClock().now() - began

    waits = [asyncio.create_task(waited_for(key)) for key in (there, missing)]
    await sleep(WAIT + 1)
    world.git.lists(Snapshot("git", Era.HANDSHAKE, {Kind.RESOURCE: (b'{"uri":"a:there","name":"n"}',)}))
    assert await waits[0] == pytest.approx(WAIT + 1) and not waits[1].done()
    assert await waits[1] == pytest.approx(CALL_WAIT)
    late = asyncio.create_task(waited_for(missing))
    await sleep(1)
    world.ci.becomes(UpstreamState.FAILED)
    assert await late == pytest.approx(1)
    assert await waited_for(unknown) == await waited_for(there) == 0


@virtual
async def test_list_waits_from_when_its_client_came() -> None:
    world = World()
    await sleep(WAIT + 60)
    came = LoopClock().now()
    assert world.catalog.is_settled() and not world.catalog.is_settled(came=came)
    await sleep(2)
    began = LoopClock().now()
    await world.catalog.settled(came=came)
    assert LoopClock().now() - began == pytest.approx(WAIT - 2)
    assert world.catalog.is_settled(came=came)


@virtual
async def test_a_server_that_is_tried_again_is_not_waited_for() -> None:
    world = World()
    world.git.becomes(UpstreamState.BACKING_OFF)
    world.ci.lists(offer("ci", "build"))
    world.git.becomes(UpstreamState.STARTING, failures=1)
    assert world.catalog.is_settled() and await waited(world) == 0
