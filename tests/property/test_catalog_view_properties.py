import json
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mcp_hub.catalog.offers.filters import EVERYTHING, Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.types import CacheHint, Era, Kind, Snapshot

SERVERS = ("a", "b", "git", "git_hub")
IDS = {
    Kind.TOOL: ["x", "hub_x", "git_x", "x.y", "x/y", "run_tool", "n" * 70],
    Kind.PROMPT: ["x", "hub_x", "run_tool"],
    Kind.RESOURCE: ["x:1", "x:2", "hub://a/x:1", "hub://b/x:1", "x:a b", "skill://x/SKILL.md", "skill://b/x/f"],
    Kind.TEMPLATE: ["x:{id}", "{+any}", "hub://a/{+x}"],
    Kind.EVENT: ["x", "hub_x", "git_x"],
    Kind.SKILL: ["skill://x/SKILL.md", "skill://x/y/SKILL.md", "skill://b/x/SKILL.md", "x://p/q/SKILL.md"],
}
EXTRAS: tuple[dict[str, object], ...] = ({}, {}, {"description": "é\nx", "x-future": [1.0]}, {"title": 7})


def skill(uri: str) -> dict[str, object]:
    """The members of a skill of this URI, if it can be one."""
    name = uri.removesuffix("/SKILL.md").rpartition("/")[2]
    return {"frontmatter": {"name": name or "-", "description": "d"}, "resources": "dynamic"}


# drawn whole: a definition assembled member by member makes generation slower than the tests
DEFINITIONS = {
    kind: [
        json.dumps(
            {"name": key, KINDS[kind].id_field: key, "inputSchema": {"type": "object"}, **skill(key), **extra}
        ).encode()
        for key in keys
        for extra in EXTRAS
    ]
    for kind, keys in IDS.items()
}
HINTS = (CacheHint(), CacheHint(5, True), CacheHint(9))
FILTERS = (
    EVERYTHING,
    EVERYTHING,
    Filter(("*x*",)),
    Filter(None, ("*1",)),
    Filter(()),
    Filter(("git*", "x:*"), ("*hub_x", "x:{*")),
)
RENAMES: tuple[dict[str, str], ...] = ({}, {}, {"x": "git_hub_x"}, {"x": "!"}, {"x": "run_tool"})


def snapshots_of(server: str) -> st.SearchStrategy[Snapshot]:
    lists = st.fixed_dictionaries(
        {kind: st.lists(st.sampled_from(found), max_size=5).map(tuple) for kind, found in DEFINITIONS.items()}
    )
    hints = st.sampled_from(HINTS).map(lambda hint: dict.fromkeys(Kind, hint))
    return st.builds(Snapshot, st.just(server), st.sampled_from(Era), lists, hints, st.just({"tools": {}}))


offers = st.tuples(*map(snapshots_of, SERVERS)).flatmap(st.permutations)
filters = st.sampled_from(FILTERS)
server_rules = st.builds(
    ServerRules,
    prefix=st.sampled_from((None, *SERVERS)),
    always=st.booleans(),
    rename=st.sampled_from(RENAMES),
    tools=filters,
    resources=filters,
    prompts=filters,
)
rules = st.builds(
    ViewRules,
    servers=st.dictionaries(st.sampled_from(SERVERS), server_rules, min_size=2),
    tools=filters,
    max_name_length=st.integers(16, 64),
    shared=st.booleans(),
)
views = st.builds(build, offers, rules)


def whole(view: CatalogView, kind: Kind, era: Era, size: int) -> list[bytes]:
    """Every definition, gathered page by page."""
    found: list[bytes] = []
    cursor: str | None = None
    while True:
        page = msgspec.json.decode(view.page(kind, era, cursor, size), type=dict[str, msgspec.Raw])
        found += map(bytes, msgspec.json.decode(page[KINDS[kind].result_key], type=list[msgspec.Raw]))
        if "nextCursor" not in page:
            return found
        cursor = msgspec.json.decode(page["nextCursor"], type=str)


@given(offers, rules)
def test_every_entry_resolves_to_its_upstream_and_nothing_else_resolves(
    offered: Sequence[Snapshot], given_rules: ViewRules
) -> None:
    view = build(offered, given_rules)
    for kind in Kind:
        entries = view.entries(kind)
        assert len({entry.exported for entry in entries}) == len(entries)
        for entry in entries:
            assert view.find(kind, entry.exported) is entry
            assert entry.server in given_rules.servers
            assert entry.key in IDS[kind]
            assert json.loads(entry.raw)[KINDS[kind].id_field] == entry.exported
        listed = {entry.exported for entry in entries}
        assert all(view.find(kind, text) is None for text in {*IDS[kind], ""} - listed)
    for entry in (*view.entries(Kind.RESOURCE), *view.entries(Kind.SKILL)):
        assert view.resolve_uri(entry.exported) == (entry.server, entry.key)
        assert view.exported_uri(entry.server, entry.key) == entry.exported


@given(offers, rules)
def test_no_road_leads_to_a_denied_resource(offered: Sequence[Snapshot], given_rules: ViewRules) -> None:
    view = build(offered, given_rules)
    wrapped = [f"hub://{server}/{uri}" for server in SERVERS for uri in IDS[Kind.RESOURCE]]
    for uri in IDS[Kind.RESOURCE] + wrapped:
        origin = view.resolve_uri(uri)
        if origin is not None:
            assert not given_rules.servers[origin[0]].resources.denies(origin[1])


@given(offers, rules, st.randoms(use_true_random=False))
def test_same_inputs_give_byte_identical_lists(
    offered: Sequence[Snapshot], given_rules: ViewRules, random: object
) -> None:
    shuffled = list(offered)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # random.Random
    a, b = build(offered, given_rules), build(shuffled, given_rules)
    for kind in Kind:
        assert a.entries(kind) == b.entries(kind)
        assert all(a.page(kind, era, None, 3) == b.page(kind, era, None, 3) for era in Era)
    assert a.quarantined == b.quarantined


@given(views, st.sampled_from(Kind), st.sampled_from(Era), st.integers(1, 5))
def test_pages_together_are_the_list(view: CatalogView, kind: Kind, era: Era, size: int) -> None:
    assert whole(view, kind, era, size) == whole(view, kind, era, 1000)
    assert len(whole(view, kind, era, size)) == len(view.entries(kind))


@given(offers, rules, st.sampled_from(["*", "x", "git*"]))
def test_adding_a_deny_never_adds_or_renames_a_tool(
    offered: Sequence[Snapshot], given_rules: ViewRules, deny: str
) -> None:
    narrower = replace(given_rules, tools=replace(given_rules.tools, deny=(*given_rules.tools.deny, deny)))
    before, after = build(offered, given_rules), build(offered, narrower)
    assert set(after.entries(Kind.TOOL)) <= set(before.entries(Kind.TOOL))


@given(offers, rules)
def test_every_definition_is_listed_hidden_or_quarantined(offered: Sequence[Snapshot], given_rules: ViewRules) -> None:
    bare = {server: ServerRules("p") for server in given_rules.servers}
    view = build(offered, ViewRules(bare))
    sent = sum(len(one.lists[kind]) for one in offered if one.server in bare for kind in Kind)
    assert sum(len(view.entries(kind)) for kind in Kind) + sum(not one.member for one in view.quarantined) == sent
