"""What clients are listed, and how much: `expose`, `budget` and their like, of hub, profile and server; filters."""

import json
from pathlib import Path

import jsonschema
import pytest

from mcp_hub.config.load import Loaded, parse
from mcp_hub.config.schema import Settings, json_schema
from mcp_hub.errors import ConfigError

MiB = 1 << 20


def load(text: str) -> Loaded:
    return parse(text, "servers.yaml", {"TAG": "read", "YES": "true"}, Path("/base"))


def of_hub(body: str) -> str:
    return f"hub:\n  {body}\nservers: {{a: {{command: x}}}}"


def of_server(body: str) -> str:
    return f"servers:\n  a:\n    {body}\n    command: x"


def of_profile(body: str) -> str:
    return f"servers: {{a: {{command: x}}}}\nprofiles:\n  p: {{{body}}}"


def finding(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(text)
    (found,) = str(caught.value).split("\n")
    return found


def test_defaults_are_the_documented_ones() -> None:
    hub = Settings().hub
    assert (hub.expose, hub.budget, hub.compact, hub.pinned) == ("auto", 8000, False, [])
    assert (hub.max_result_tokens, hub.aliases) == (8000, {})
    limits = hub.limits
    assert (limits.results, limits.results_size, limits.result_ttl) == (200, 256 * MiB, 86400.0)
    profile = load(of_profile("")).settings.profiles["p"]
    assert (profile.expose, profile.budget, profile.compact) == (None, None, None)
    assert (profile.pinned, profile.max_result_tokens) == (None, None)
    server = load(of_server("enabled: true")).settings.servers["a"]
    assert (server.expose, server.compact) == (None, None)


EXPOSE = 'expected "auto", "full", "search" or "names"'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("expose: some", f"expose: {EXPOSE}"),
        ("budget: -1", "budget: must be at least 0"),
        ("budget: lots", "budget: expected a whole number"),
        ("compact: perhaps", "compact: expected true or false"),
        ("pinned: git_*", "pinned: expected a list"),
        ("pinned: ['']", "pinned[0]: must not be empty"),
        (f"pinned: [{','.join('x' * 1001)}]", "pinned: must have at most 1000 entries"),
        ("max_result_tokens: -1", "max_result_tokens: must be at least 0"),
        ("aliases: [a]", "aliases: expected a mapping (key: value)"),
        ("aliases: {a: b}", "aliases.a: expected a list"),
        ("aliases: {a: []}", "aliases.a: must not be empty"),
        ("aliases: {a: ['']}", "aliases.a[0]: must not be empty"),
        ("aliases: {'': [b]}", 'aliases[""]: must not be empty'),
        (f"aliases: {{a: [{','.join('x' * 33)}]}}", "aliases.a: must have at most 32 entries"),
        (f"aliases: {{a: [{'x' * 65}]}}", "aliases.a[0]: must have at most 64 characters"),
        (f"aliases: {{{','.join(f'w{n}: [x]' for n in range(1001))}}}", "aliases: must have at most 1000 entries"),
        ("limits: {results: 0}", "limits.results: must be at least 1"),
        ("limits: {results_size: 0}", "limits.results_size: expected a size"),
        ("limits: {result_ttl: 0s}", "limits.result_ttl: must be longer than 0"),
        ("expos: full", 'expos: unknown key "expos"; did you mean "expose"?'),
    ],
)
def test_bad_value_of_the_hub_is_found_where_it_stands(body: str, said: str) -> None:
    assert finding(of_hub(body)).startswith(f"servers.yaml:2: hub.{said}")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("expose: some", f"expose: {EXPOSE}"),
        ("budget: -1", "budget: must be at least 0"),
        ("pinned: x", "pinned: expected a list"),
        ("max_result_tokens: x", "max_result_tokens: expected a whole number"),
        ("limits: {running_calls: 1}", 'limits: unknown key "limits"'),
        ("tools: {allow: x}", "tools.allow: expected a list"),
        ("resources: {deny: [{readOnlyHint: true}]}", 'resources.deny[0].readOnlyHint: unknown key "readOnlyHint"'),
        ("prompts: {deny: [{tags: x}]}", 'prompts.deny[0].tags: unknown key "tags"; did you mean "tag"?'),
    ],
)
def test_bad_value_of_a_profile_is_found_where_it_stands(body: str, said: str) -> None:
    assert finding(of_profile(body)).startswith(f"servers.yaml:3: profiles.p.{said}")


WANTED = 'expected a glob in quotes, or a mapping such as {tag: "read"}'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("expose: auto", 'expose: expected "full" or "search"'),
        ("expose: names", 'expose: expected "full" or "search"'),
        ("compact: 3", "compact: expected true or false"),
        ("tools: {allow: [5]}", f"tools.allow[0]: {WANTED} or {{readOnlyHint: true}}"),
        ("tools: {allow: [[x]]}", f"tools.allow[0]: {WANTED}"),
        ("tools: {allow: {}}", "tools.allow: expected a list"),
        ("tools: {allow: [null]}", f"tools.allow[0]: {WANTED}"),
        ("tools: {allow: ['a', '']}", "tools.allow[1]: must not be empty"),
        ("tools: {allow: [{}]}", f"tools.allow[0]: is empty: {WANTED}"),
        ("tools: {allow: [{tag: }]}", f"tools.allow[0]: is empty: {WANTED}"),
        ("tools: {allow: [{name: ''}]}", "tools.allow[0].name: must not be empty"),
        ("tools: {allow: [{tag: 5}]}", "tools.allow[0].tag: expected text; put it in quotes"),
        ("tools: {allow: [{readOnly: true}]}", 'tools.allow[0].readOnly: unknown key "readOnly"; did you mean'),
        ("tools: {deny: [{readOnlyHint: perhaps}]}", "tools.deny[0].readOnlyHint: expected true or false"),
        ("resources: {allow: [5]}", f"resources.allow[0]: {WANTED}"),
        ("prompts: {allow: [{openWorldHint: true}]}", "prompts.allow[0].openWorldHint: unknown key"),
        (f"tools: {{deny: [{','.join('x' * 1001)}]}}", "tools.deny: must have at most 1000 entries"),
    ],
)
def test_bad_value_of_a_server_is_found_where_it_stands(body: str, said: str) -> None:
    assert finding(of_server(body)).startswith(f"servers.yaml:3: servers.a.{said}")


def test_entries_of_filters_are_globs_or_mappings_of_tags_and_hints() -> None:
    body = (
        "tools: {allow: ['get_*', {tag: '${TAG}', readOnlyHint: '${YES}'}], deny: [{name: x, destructiveHint: true}]}"
    )
    own = load(of_server(body)).settings.servers["a"].tools
    assert own.allow is not None
    glob, tagged = own.allow
    assert (glob.name, glob.tag, glob.readOnlyHint) == ("get_*", None, None)
    assert (tagged.name, tagged.tag, tagged.readOnlyHint) == (None, "read", True)
    assert (own.deny[0].name, own.deny[0].destructiveHint, own.deny[0].readOnlyHint) == ("x", True, None)


@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
@pytest.mark.parametrize(("body", "allow"), [("allow: []", []), ("allow: ", None), ("deny: []", None)])
def test_allow_without_entries_is_kept_apart_from_no_allow(kind: str, body: str, allow: list[object] | None) -> None:
    text = f"{of_server(f'{kind}: {{{body}}}')}\nprofiles: {{p: {{{kind}: {{{body}}}}}}}"
    settings = load(text).settings
    for section in (settings.servers["a"], settings.profiles["p"]):
        assert getattr(section, kind).allow == allow
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (of_hub("budget: 249"), "servers.yaml:2: hub.budget: "),
        (of_hub("budget: 0"), "servers.yaml:2: hub.budget: "),
        (of_profile("budget: 10"), "servers.yaml:3: profiles.p.budget: "),
    ],
)
def test_budget_below_what_the_hubs_own_tools_take_is_warned_of(text: str, where: str) -> None:
    (warning,) = load(text).warnings
    assert warning.startswith(f"{where}less than the 250 tokens that find_tools, run_tool and read_result take")


@pytest.mark.parametrize("text", [of_hub("budget: 250"), of_profile("budget: 250"), of_profile("")])
def test_budget_that_can_hold_them_is_fine(text: str) -> None:
    assert load(text).warnings == ()


SERVER = {"command": "x"}
ACCEPTED: list[object] = [
    {"hub": {"expose": "names", "budget": 0, "compact": True, "pinned": ["a_*"], "max_result_tokens": 0}},
    {"hub": {"aliases": {"pr": ["pull", "request"]}, "limits": {"results_size": "1MiB", "result_ttl": "5m"}}},
    {"hub": {"clients": {"a": {"max_tools": 5}, "b": {"defers_tools": True}}}},
    {"servers": {"a": {**SERVER, "expose": "full", "compact": "${YES}", "tools": {"allow": ["a", {"tag": "${TAG}"}]}}}},
    {"servers": {"a": {**SERVER, "per_tool": {"x": {"name": "y", "description": "${TAG}", "hide": "${YES}"}}}}},
    {"servers": {"a": {**SERVER, "per_tool": {"x*": {"pin": False, "tags": ["t"], "arguments": {"a": [None, {}]}}}}}},
    {"servers": {"a": {**SERVER, "per_tool": {"x": {"fixed": {"key": "${TAG}", "n": 1.5}}}}}},
    {"profiles": {"p": {"expose": "full", "budget": 300, "compact": False, "pinned": [], "max_result_tokens": 5}}},
    {"profiles": {"p": {"tools": {"deny": [{"destructiveHint": True, "name": "x"}]}, "prompts": {"allow": ["x"]}}}},
    {"profiles": {"p": {"resources": {"allow": ["file:///*", {"tag": "x"}]}}}},
    {"profiles": {"p": {"resources": {"allow": []}, "tools": {"allow": None}}}},
]
REFUSED: list[object] = [
    {"hub": {"expose": "all"}},
    {"hub": {"budget": -1}},
    {"hub": {"aliases": {"a": []}}},
    {"hub": {"clients": {"a": {"max_tools": 0}}}},
    {"servers": {"a": {**SERVER, "expose": "names"}}},
    {"servers": {"a": {**SERVER, "tools": {"allow": [{}]}}}},
    {"servers": {"a": {**SERVER, "tools": {"allow": [""]}}}},
    {"servers": {"a": {**SERVER, "tools": {"allow": [{"readOnly": True}]}}}},
    {"servers": {"a": {**SERVER, "resources": {"allow": [{"readOnlyHint": True}]}}}},
    {"servers": {"a": {**SERVER, "per_tool": {"x": {"name": "a b"}}}}},
    {"servers": {"a": {**SERVER, "per_tool": {"x": {"fixed": []}}}}},
    {"profiles": {"p": {"limits": {}}}},
]


@pytest.mark.parametrize("instance", ACCEPTED)
def test_json_schema_takes_what_loads_and_the_dump_loads_as_the_same(instance: dict[str, object]) -> None:
    jsonschema.Draft202012Validator(json_schema()).validate(instance)
    settings = load(json.dumps(instance)).settings
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize("instance", REFUSED)
def test_json_schema_refuses_what_does_not(instance: dict[str, object]) -> None:
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(instance)
    with pytest.raises(ConfigError):
        load(json.dumps(instance))
