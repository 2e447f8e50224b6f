"""Patterns of the settings that nothing matches, and those of which it is too early to tell."""

import json
from typing import Any

import pytest

from mcp_hub.catalog.offers.filters import Filter, Selector
from mcp_hub.catalog.offers.rules import Override, ServerRules, ViewRules
from mcp_hub.catalog.views.unmatched import Unmatched, has_patterns, unmatched
from mcp_hub.types import Era, Kind, Snapshot
from tests.unit.catalog.offers import tool


def offer(server: str, *tools: str, prompts: tuple[str, ...] = ()) -> Snapshot:
    listed = {Kind.PROMPT: tuple(json.dumps({"name": name}).encode() for name in prompts)}
    return Snapshot(server, Era.HANDSHAKE, {Kind.TOOL: tuple(tool(name, tags=["own"]) for name in tools), **listed})


GIT, CI = offer("git", "log", "push", prompts=("review",)), offer("ci", "run")


def paths(found: list[Unmatched]) -> list[str]:
    return [".".join(map(str, one.path)) for one in found]


def of_server(rules: ServerRules, *snapshots: Snapshot) -> list[str]:
    return paths(unmatched(snapshots or [GIT, CI], {None: ViewRules({"git": rules, "ci": ServerRules("ci")})}))


def of_profile(rules: ViewRules, *snapshots: Snapshot, pinned: tuple[str, ...] = ()) -> list[str]:
    every = {"git": ServerRules("git"), "ci": ServerRules("ci")}
    return paths(unmatched(snapshots or [GIT, CI], {None: ViewRules(every, pinned=pinned), "p": rules}))


def profile(servers: str = "git ci", **filters: Any) -> ViewRules:
    return ViewRules({name: ServerRules(name) for name in servers.split()}, **filters)


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (ServerRules("git", tools=Filter(("log", "git_p*", "x*"), ("pull",))), ["tools.allow.2", "tools.deny.0"]),
        (ServerRules("git", tools=Filter(deny=("run", "ci_run"))), ["tools.deny.0", "tools.deny.1"]),
        (ServerRules("git", tools=Filter((Selector(tag="own"), Selector(tag="other")))), ["tools.allow.1"]),
        (ServerRules("git", tools=Filter((Selector(name="log", tag="x"),))), ["tools.allow.0"]),
        (ServerRules("git", tools=Filter(deny=(Selector(read_only=True), Selector(destructive=False)))), []),
        (ServerRules("git", prompts=Filter(("review", "log"))), ["prompts.allow.1"]),
        (ServerRules("git", resources=Filter(("file:///*",))), []),
        (ServerRules("git", rename={"log": "a", "review": "b", "pull": "c"}), ["rename.pull"]),
        (
            ServerRules(
                "git", overrides={"log": Override(hide=True), "l*": Override(), "x*": Override(), "[": Override()}
            ),
            ["per_tool.x*", "per_tool.["],
        ),
        (ServerRules("git", overrides={"log": Override(hide=True)}, tools=Filter(deny=("log",))), []),
    ],
)
def test_pattern_of_a_server_that_matches_none_of_its_own_is_found(rules: ServerRules, found: list[str]) -> None:
    assert of_server(rules) == [f"servers.git.{path}" for path in found]
    assert has_patterns({None: ViewRules({"git": rules})}) or not found


def test_server_that_was_not_listed_yet_is_not_judged() -> None:
    rules = ServerRules("git", tools=Filter(("x",)))
    assert of_server(rules, CI) == []
    assert of_server(rules, GIT) == ["servers.git.tools.allow.0"]


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (profile(tools=Filter(("git_log", "log"), ("ci_*", "git_x"))), ["tools.allow.1", "tools.deny.1"]),
        (profile("git", tools=Filter(("ci_*",))), ["tools.allow.0"]),
        (profile(prompts=Filter(("git_review", "review"))), ["prompts.allow.1"]),
        (profile(resources=Filter(("x",))), []),
    ],
)
def test_pattern_of_a_profile_is_judged_by_exported_names_of_its_servers(rules: ViewRules, found: list[str]) -> None:
    assert of_profile(rules) == [f"profiles.p.{path}" for path in found]


def test_pinned_names_are_those_that_clients_know() -> None:
    own = ViewRules({"git": ServerRules("git")}, pinned=("git_*", "ci_*"))
    assert of_profile(own, pinned=("log", "ci_run")) == ["hub.pinned.0", "profiles.p.pinned.1"]
    inherited = ViewRules({"git": ServerRules("git")}, pinned=("log",))
    assert of_profile(inherited, pinned=("log",)) == ["hub.pinned.0"]


def test_what_is_for_several_servers_is_judged_once_all_are_listed_that_can_be() -> None:
    servers = {"git": ServerRules("git"), "off": ServerRules("off")}
    rules = {None: ViewRules(servers, pinned=("x",)), "p": ViewRules(servers, Filter(("y",)))}
    assert unmatched([GIT], rules) == []
    assert paths(unmatched([GIT], rules, absent=["off"])) == ["hub.pinned.0", "profiles.p.tools.allow.0"]


def test_finding_names_the_pattern() -> None:
    rules = ServerRules("git", tools=Filter(("x*",), (Selector(name="a", tag="b*"),)))
    found = unmatched([GIT], {None: ViewRules({"git": rules})})
    assert [one.reason for one in found] == [
        '"x*" matches nothing that the servers offer. Correct or remove it.',
        '"name:a tag:b*" matches nothing that the servers offer. Correct or remove it.',
    ]


def test_settings_without_patterns_have_none() -> None:
    assert not has_patterns({None: ViewRules({"git": ServerRules("git")}), "p": ViewRules({})})
    assert has_patterns({None: ViewRules({}), "p": ViewRules({}, pinned=("x",))})
    assert not has_patterns({None: ViewRules({"git": ServerRules(tools=Filter((Selector(read_only=True),)))})})
