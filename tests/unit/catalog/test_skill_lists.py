import json
from typing import Any

import pytest

from mcp_hub.catalog.offers.filters import EVERYTHING, Filter
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.errors import UnknownEntry
from mcp_hub.protocol.capabilities import KINDS, extensions_in
from mcp_hub.types import CacheHint, Era, Kind, Snapshot

EXTENSION = "io.modelcontextprotocol/skills"
NOW = CacheHint()
DIGEST = f"sha256:{'0' * 64}"


def skill(root: str, *files: str, **members: Any) -> bytes:
    uris = [f"{root}/SKILL.md", *(f"{root}/{name}" for name in files)]
    about = {"name": root.rpartition("/")[2], "description": "d"}
    resources = [{"uri": uri, "digest": DIGEST, "size": 1, "x-kept": True} for uri in uris]
    return json.dumps({"uri": uris[0], "frontmatter": about, "resources": resources, **members}).encode()


def server(name: str, *skills: bytes, hint: CacheHint = NOW, directories: bool = False) -> Snapshot:
    settings = {"directoryRead": True} if directories else {}
    capabilities = {"resources": {}, "extensions": {EXTENSION: settings}}
    return Snapshot(name, Era.MODERN, {Kind.SKILL: skills}, {Kind.SKILL: hint}, capabilities)


def view(*servers: Snapshot, resources: Filter = EVERYTHING, shared: bool = True) -> CatalogView:
    rules = {own.server: ServerRules(own.server) for own in servers}
    return build(servers, ViewRules(rules, shared=shared, resources=resources))


def listed(made: CatalogView, cursor: str | None = None, size: int = 10) -> Any:
    return json.loads(made.page(Kind.SKILL, Era.MODERN, cursor, size))


def test_everything_but_addresses_is_kept_and_pages_do_not_split_a_skill() -> None:
    made = view(
        server("a", skill("skill://x", "f"), skill("skill://y", **{"x-future": [1.0]})), server("b", skill("skill://x"))
    )
    first = listed(made, size=2)
    second = listed(made, first["nextCursor"], 2)
    assert [own["uri"] for own in first["skills"]] == ["skill://x/SKILL.md", "skill://y/SKILL.md"]
    assert first["skills"][1]["x-future"] == [1.0]
    (moved,) = second["skills"]
    file = {"uri": "skill://b/x/SKILL.md", "digest": DIGEST, "size": 1, "x-kept": True}
    assert (moved["uri"], moved["resources"]) == (file["uri"], [file])
    assert moved["_meta"] == {"dev.mcp-hub/server": "b"}


def test_entries_that_hosts_must_refuse_are_quarantined() -> None:
    made = view(server("a", skill("skill://x", resources=[]), skill("skill://y")))
    assert [own["uri"] for own in listed(made)["skills"]] == ["skill://y/SKILL.md"]
    (left_out,) = made.quarantined
    assert "lacks the SKILL.md itself" in left_out.text


@pytest.mark.parametrize(
    ("others", "resources", "shared", "expected"),
    [
        ((CacheHint(9, True),), EVERYTHING, True, (5, "public")),
        ((CacheHint(2, True),), EVERYTHING, True, (2, "public")),
        ((CacheHint(9, False),), EVERYTHING, True, (5, "private")),
        ((CacheHint(9, True),), EVERYTHING, False, (5, "private")),
        ((CacheHint(9, True),), Filter(deny=("skill://nothing",)), True, (5, "private")),
        ((), EVERYTHING, True, (5, "public")),
    ],
)
def test_a_list_may_be_kept_as_its_strictest_server_says_and_is_private_once_filtered(
    others: tuple[CacheHint, ...], resources: Filter, shared: bool, expected: tuple[int, str]
) -> None:
    rest = [server(f"b{n}", hint=hint) for n, hint in enumerate(others)]
    made = view(server("a", skill("skill://x"), hint=CacheHint(5, True)), *rest, resources=resources, shared=shared)
    assert (listed(made)["ttlMs"], listed(made)["cacheScope"]) == expected


@pytest.mark.parametrize("odd", [[], None, "x", 5, True, {EXTENSION: []}, {EXTENSION: None}, {EXTENSION: "x"}])
def test_extensions_of_any_form_take_no_other_server_along(odd: object) -> None:
    strange = Snapshot("a", Era.MODERN, {}, capabilities={"extensions": odd, "resources": odd})
    made = view(strange, server("b", skill("skill://x", "f")))
    assert [entry.server for entry in made.entries(Kind.SKILL)] == ["b"]
    assert KINDS[Kind.SKILL].is_offered(strange.capabilities) is (isinstance(odd, dict))
    assert {**extensions_in(strange.capabilities)} == (odd if isinstance(odd, dict) else {})


def test_directories_of_a_server_that_cannot_read_them_are_made_of_its_manifests() -> None:
    files = ("f", "deep/g", "deep/deeper/h")
    made = view(server("a", skill("skill://x", *files), directories=True), server("b", skill("skill://x", *files)))
    assert made.resources.directory("skill://x", made.entries(Kind.SKILL)) is None  # the server is asked
    found = json.loads(made.resources.directory("skill://b/x/deep", made.entries(Kind.SKILL)) or b"")
    assert [(own["uri"], own.get("mimeType")) for own in found["resources"]] == [
        ("skill://b/x/deep/g", None),
        ("skill://b/x/deep/deeper", "inode/directory"),
    ]
    assert found["_meta"] == {"dev.mcp-hub/server": "b"} and found["cacheScope"] == "private"
    for uri in ("skill://b/x/f", "skill://b/x/nothing"):
        with pytest.raises(UnknownEntry):
            made.resources.directory(uri, made.entries(Kind.SKILL))
