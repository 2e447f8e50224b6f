"""The plan of a reload: what is not changed stays out; no key is forgotten; what has to wait stays as it is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.config.plan import Plan, leaves, plan, until_next_start
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.fields import holds_at_once
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from tests.examples import examples

NAMES = ("a", "b", "c", "d")

seconds = st.sampled_from(["5s", "60s", "30m"])
filters = st.fixed_dictionaries({}, optional={"allow": st.just(["get_*"]), "deny": st.just([{"tag": "x"}])})
rules: dict[str, st.SearchStrategy[Any]] = {
    "tools": filters,
    "timeout": seconds,
    "start_timeout": seconds,
    "restart": st.sampled_from([{"intensity": 5}, {"intensity": 1}]),
    "task": st.sampled_from(["auto", "never"]),
    "prefix": st.sampled_from(["auto", "x"]),
    "description": st.sampled_from(["one", "two"]),
    "per_tool": st.sampled_from(
        [{}, {"t*": {"hide": True}, "*": {"pin": True}}, {"*": {"pin": True}, "t*": {"hide": True}}]
    ),
}
connections: dict[str, st.SearchStrategy[Any]] = {
    "args": st.sampled_from([[], ["-v"]]),
    "env": st.sampled_from([{}, {"A": "1"}]),
    "scope": st.sampled_from(["shared", "session"]),
    "era": st.sampled_from(["auto", "handshake"]),
    "enabled": st.booleans(),
}
server = st.fixed_dictionaries({"command": st.sampled_from(["x", "y"])}, optional={**rules, **connections})
defaults = st.fixed_dictionaries(
    {}, optional={"timeout": seconds, "start_timeout": seconds, "task": st.sampled_from(["auto", "never"])}
)
hub = st.fixed_dictionaries(
    {},
    optional={
        "expose": st.sampled_from(["auto", "full"]),
        "pinned": st.sampled_from([["a"], ["b", "a"]]),
        "aliases": st.sampled_from([{"pr": ["pull request"]}, {}]),
        "name": st.sampled_from(["one", "two"]),
        "tokens": st.sampled_from([[], [{"token": "t", "principal": "p"}]]),
        "http": st.fixed_dictionaries(
            {}, optional={"port": st.sampled_from([1, 2]), "allowed_hosts": st.sampled_from([[], ["h"]])}
        ),
        "limits": st.fixed_dictionaries(
            {}, optional={"line": st.sampled_from([9000, 9001]), "tools_per_server": st.sampled_from([1, 2])}
        ),
        "clients": st.sampled_from([{}, {"x": {"max_tools": 3}, "y": {"max_tools": 4}}, {"y": {"max_tools": 4}}]),
    },
)
profile = st.fixed_dictionaries({}, optional={"tools": filters, "budget": st.sampled_from([300, 900])})


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    names = draw(st.permutations(NAMES))[: draw(st.integers(0, 4))]
    profiles = draw(st.permutations(["p", "q"]))[: draw(st.integers(0, 2))]
    return Settings.model_validate(
        {
            "servers": {name: draw(server) for name in names},
            "defaults": draw(defaults),
            "hub": draw(hub),
            "profiles": {name: draw(profile) for name in profiles},
        }
    )


@given(any_settings())
@settings(max_examples=examples(50))
def test_the_same_settings_make_an_empty_plan(one: Settings) -> None:
    assert plan(one, one.model_copy(deep=True)) == Plan(unchanged=tuple(one.servers))


@given(any_settings(), any_settings())
@settings(max_examples=examples(200))
def test_each_server_has_one_place_and_only_what_runs_otherwise_starts_again(old: Settings, new: Settings) -> None:
    change = plan(old, new)
    assert {*change.added, *change.restarted, *change.adjusted, *change.unchanged} == set(new.servers)
    assert {*change.removed, *change.restarted, *change.adjusted, *change.unchanged} == set(old.servers)
    for name in change.unchanged:
        assert old.servers[name].model_copy(update={"scope": None}) == new.servers[name].model_copy(
            update={"scope": None}
        )
    for name in (*change.unchanged, *change.adjusted):
        for key in connections.keys() - {"scope"}:
            assert getattr(old.servers[name], key) == getattr(new.servers[name], key)
        assert (old.servers[name].scope or "shared") == (new.servers[name].scope or "shared")


@given(any_settings(), any_settings())
@settings(max_examples=examples(100))
def test_what_waits_for_the_next_start_stays_as_it_is_and_is_named_again(old: Settings, new: Settings) -> None:
    change = plan(old, new)
    now = until_next_start(old, new)
    for path, value in leaves(now.hub, ("hub",)):
        of = old if ".".join(path) in change.next_start else new
        assert value == dict(leaves(of.hub, ("hub",)))[path]
    assert [*now.servers.items(), *now.profiles.items()] == [*new.servers.items(), *new.profiles.items()]
    assert now.defaults == new.defaults
    again = plan(now, new)
    assert again.next_start == change.next_start and again.at_once == () and again.unchanged == tuple(new.servers)


def test_default_changes_without_a_restart_of_servers_but_for_a_sandbox() -> None:
    assert [key for key in Defaults.model_fields if not holds_at_once(ServerSettings, key)] == ["sandbox"]


def changed(section: Any, path: tuple[str, ...]) -> Any:
    key, *rest = path
    return section.model_copy(update={key: changed(getattr(section, key), tuple(rest)) if rest else object()})


@pytest.mark.parametrize("path", [path for path, _ in leaves(Settings().hub, ("hub",))], ids=".".join)
def test_key_of_the_hub_holds_at_once_or_is_named_for_the_next_start(path: tuple[str, ...]) -> None:
    change = plan(Settings(), changed(Settings(), path))
    named = (".".join(path),)
    assert (change.at_once, change.next_start) in ((named, ()), ((), named))


def test_settings_have_no_other_sections_than_those_that_plans_know() -> None:
    assert Settings.model_fields.keys() == {"hub", "servers", "defaults", "profiles"}


EXAMPLES: dict[str, Any] = {
    "args": ["-v"], "env": {"A": "1"}, "cwd": "/tmp", "scope": "call", "enabled": False, "era": "modern",
    "headers": {"X-A": "1"}, "bearer": "t", "type": "sse",
}  # fmt: skip


@pytest.mark.parametrize("key", EXAMPLES)
def test_another_connection_starts_the_server_again(key: str) -> None:
    base = {"url": "http://127.0.0.1:1/mcp"} if key in ("headers", "bearer", "type") else {"command": "x"}
    old = Settings.model_validate({"servers": {"a": base, "b": {"command": "x"}}})
    new = Settings.model_validate({"servers": {"a": {**base, key: EXAMPLES[key]}, "b": {"command": "x"}}})
    change = plan(old, new)
    assert (change.restarted, change.adjusted, change.unchanged) == (("a",), (), ("b",))


def test_a_default_concerns_the_servers_that_say_nothing_else() -> None:
    servers = {"a": {"command": "x"}, "b": {"command": "x", "timeout": "5s"}}
    old, new = (Settings.model_validate({"servers": servers, "defaults": {"timeout": text}}) for text in ("10s", "20s"))
    change = plan(old, new)
    assert (change.adjusted, change.unchanged, change.at_once) == (("a",), ("b",), ("defaults.timeout",))


def test_a_scope_that_is_left_out_is_the_shared_one() -> None:
    old = Settings.model_validate({"servers": {"a": {"command": "x"}}})
    new = Settings.model_validate({"servers": {"a": {"command": "x", "scope": "shared"}}})
    assert plan(old, new).restarted == ()


def test_the_order_of_entries_of_which_the_first_decides_is_a_change() -> None:
    entries = {"x*": {"hide": True}, "*y": {"pin": True}}
    turned = dict(reversed(entries.items()))
    clients = {"one": {"matches": ["a*"]}, "two": {"matches": ["*b"]}}
    old, new = (
        Settings.model_validate({"servers": {"a": {"command": "x", "per_tool": own}}, "hub": {"clients": kinds}})
        for own, kinds in ((entries, clients), (turned, dict(reversed(clients.items()))))
    )
    change = plan(old, new)
    assert (change.adjusted, change.at_once) == (("a",), ("hub.clients",))


def test_the_last_server_and_the_last_profile_can_go() -> None:
    old = Settings.model_validate({"servers": {"a": {"command": "x"}}, "profiles": {"p": {}}})
    change = plan(old, Settings())
    assert change == Plan(removed=("a",), at_once=("profiles.p",))


def test_no_secret_is_in_what_a_plan_shows_of_itself() -> None:
    old = Settings.model_validate({"servers": {"a": {"command": "x", "env": {"KEY": "hunter2"}}}})
    new = Settings.model_validate(
        {
            "servers": {"a": {"command": "x", "env": {"KEY": "hunter3"}}},
            "hub": {"tokens": [{"token": "hunter4", "principal": "p"}]},
            "profiles": {"p": {}},
        }
    )
    assert "hunter" not in repr(plan(old, new))


@pytest.mark.parametrize("history", ["off", {"arguments": "none"}, {"keep": "1h", "calls": 5, "size": "1MiB"}])
def test_history_that_is_changed_or_turned_off_holds_at_once(history: object) -> None:
    """A mark on a section is one of its keys."""
    old, new = (Settings.model_validate({"hub": hub}) for hub in ({}, {"history": history}))
    change = plan(old, new)
    assert change.at_once and not change.next_start
    assert until_next_start(old, new).hub.history == new.hub.history != old.hub.history
