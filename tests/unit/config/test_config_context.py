"""What clients are listed, and how much: `expose`, `budget` and their like, of hub, profile and server; filters."""

import json
from pathlib import Path

import pytest

from mcp_hub import extras
from mcp_hub.code.steps import CodeLimits
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.plan import plan
from mcp_hub.config.schema.hub import HubSettings
from mcp_hub.config.schema.settings import Settings
from tests.unit.config.faults import refused, shown


def load(text: str) -> Loaded:
    return parse(text, "servers.yaml", {"TAG": "read", "YES": "true", "STATE": "/var", "DAYS": "2d"}, Path("/base"))


def of_hub(body: str) -> str:
    return f"hub:\n  {body}\nservers: {{a: {{command: x}}}}"


def of_server(body: str) -> str:
    return f"servers:\n  a:\n    {body}\n    command: x"


def of_profile(body: str) -> str:
    return f"servers: {{a: {{command: x}}}}\nprofiles:\n  p: {{{body}}}"


NOT_PUBLIC = ["http://hub.example.com", "https://127.0.0.1", "https://a@b.org", "https://a.org/?x", "https://a.org/#x"]
NO_ORIGINS = ["*", "null", "app.example", "https://*.example", "https://app.example/a", "https://a@app.example"]
OF_HUB = [
    ("stor: {}", "stor [unknown_key]"),
    ("task_afer: 1s", "task_afer [unknown_key]"),
    ("client: {}", "client [unknown_key]"),
    ("store: redis", "store [invalid_value]"),
    ("store: 'sqlite:'", "store [invalid_value]"),
    ("store: memory:x", "store.path [misplaced_key]"),
    ("store: 5", "store [wrong_type]"),
    ("store: {retenton: 1h}", "store.retenton [unknown_key]"),
    ("store: {type: redis}", "store.url [missing_key]"),
    ("store: {type: mongo}", "store.type [invalid_value]"),
    ("store: {url: 'http://localhost'}", "store.url [invalid_value]"),
    ("store: 'redis://'", "store.url [invalid_value]"),
    ("store: {url: 'redis://localhost', path: x}", "store.path [misplaced_key]"),
    ("store: {lease: 6s}", "store.lease [misplaced_key]"),
    ("store: {url: 'redis://localhost', lease: 100ms}", "store.lease [out_of_range]"),
    ("store: {url: 'redis://localhost', prefix: 'a{b}'}", "store.prefix [invalid_value]"),
    ("store: {url: 'redis://localhost', acknowledge: all}", "store.acknowledge [invalid_value]"),
    ("store: {retention: 0}", "store.retention [invalid_value]"),
    ("store: {retention: never}", "store.retention [invalid_value]"),
    ("store: {path: ''}", "store.path [out_of_range]"),
    ("store: {path: 5}", "store.path [wrong_type]"),
    ('store: {path: "a\\0b"}', "store.path [invalid_value]"),
    ("store: {type: memory, path: x}", "store.path [misplaced_key]"),
    ("store: {path: '${NOPE}'}", "store.path [variable_not_set]"),
    ("task_after: soon", "task_after [invalid_value]"),
    ("task_after: -1", "task_after [invalid_value]"),
    ("limits: {detached_calls: 0}", "limits.detached_calls [out_of_range]"),
    ("limits: {stream_events: many}", "limits.stream_events [wrong_type]"),
    ("limits: {stream_events: 0}", "limits.stream_events [out_of_range]"),
    ("limits: {stream_size: 0}", "limits.stream_size [invalid_value]"),
    ("limits: {stream_size: huge}", "limits.stream_size [invalid_value]"),
    *((f"http: {{cors: ['{origin}']}}", "http.cors[0] [invalid_value]") for origin in NO_ORIGINS),
    *((f"http: {{public_url: '{url}'}}", "http.public_url [invalid_value]") for url in NOT_PUBLIC),
    ("limits: {event: 1}", "limits.event [unknown_key]"),
    ("code: write", "code [invalid_value]"),
    ("code: true", "code [invalid_value]"),
    ("code_limits: {memory: 0}", "code_limits.memory [invalid_value]"),
    ("code_limits: {memory: 1kB}", "code_limits.memory [out_of_range]"),
    ("code_limits: {seconds: 0}", "code_limits.seconds [invalid_value]"),
    ("code_limits: {calls: 0}", "code_limits.calls [out_of_range]"),
    ("code_limits: {time: 1s}", "code_limits.time [unknown_key]"),
]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (of_hub("expose: some"), "2: hub.expose [invalid_value]"),
        (of_hub("budget: -1"), "2: hub.budget [out_of_range]"),
        (of_hub("budget: lots"), "2: hub.budget [wrong_type]"),
        (of_hub("compact: perhaps"), "2: hub.compact [wrong_type]"),
        (of_hub("pinned: git_*"), "2: hub.pinned [wrong_type]"),
        (of_hub("pinned: ['']"), "2: hub.pinned[0] [out_of_range]"),
        (of_hub(f"pinned: [{','.join('x' * 1001)}]"), "2: hub.pinned [out_of_range]"),
        (of_hub("max_result_tokens: -1"), "2: hub.max_result_tokens [out_of_range]"),
        (of_hub("aliases: [a]"), "2: hub.aliases [wrong_type]"),
        (of_hub("aliases: {a: b}"), "2: hub.aliases.a [wrong_type]"),
        (of_hub("aliases: {a: []}"), "2: hub.aliases.a [out_of_range]"),
        (of_hub("aliases: {a: ['']}"), "2: hub.aliases.a[0] [out_of_range]"),
        (of_hub("aliases: {'': [b]}"), '2: hub.aliases[""] [out_of_range]'),
        (of_hub(f"aliases: {{a: [{','.join('x' * 33)}]}}"), "2: hub.aliases.a [out_of_range]"),
        (of_hub(f"aliases: {{a: [{'x' * 65}]}}"), "2: hub.aliases.a[0] [out_of_range]"),
        (of_hub(f"aliases: {{{','.join(f'w{n}: [x]' for n in range(1001))}}}"), "2: hub.aliases [out_of_range]"),
        (of_hub("limits: {results: 0}"), "2: hub.limits.results [out_of_range]"),
        (of_hub("limits: {results_size: 0}"), "2: hub.limits.results_size [invalid_value]"),
        (of_hub("limits: {result_ttl: 0s}"), "2: hub.limits.result_ttl [invalid_value]"),
        (of_hub("expos: full"), "2: hub.expos [unknown_key]"),
        *((of_hub(body), f"2: hub.{place}") for body, place in OF_HUB),
        (of_profile("expose: some"), "3: profiles.p.expose [invalid_value]"),
        (of_profile("budget: -1"), "3: profiles.p.budget [out_of_range]"),
        (of_profile("pinned: x"), "3: profiles.p.pinned [wrong_type]"),
        (of_profile("max_result_tokens: x"), "3: profiles.p.max_result_tokens [wrong_type]"),
        (of_profile("limits: {running_calls: 1}"), "3: profiles.p.limits [unknown_key]"),
        (of_profile("tools: {allow: x}"), "3: profiles.p.tools.allow [wrong_type]"),
        (
            of_profile("resources: {deny: [{readOnlyHint: true}]}"),
            "3: profiles.p.resources.deny[0].readOnlyHint [unknown_key]",
        ),
        (of_profile("prompts: {deny: [{tags: x}]}"), "3: profiles.p.prompts.deny[0].tags [unknown_key]"),
        (of_server("expose: auto"), "3: servers.a.expose [invalid_value]"),
        (of_server("expose: names"), "3: servers.a.expose [invalid_value]"),
        (of_server("compact: 3"), "3: servers.a.compact [wrong_type]"),
        (of_server("tools: {allow: [5]}"), "3: servers.a.tools.allow[0] [wrong_type]"),
        (of_server("tools: {allow: [[x]]}"), "3: servers.a.tools.allow[0] [wrong_type]"),
        (of_server("tools: {allow: {}}"), "3: servers.a.tools.allow [wrong_type]"),
        (of_server("tools: {allow: [null]}"), "3: servers.a.tools.allow[0] [wrong_type]"),
        (of_server("tools: {allow: ['a', '']}"), "3: servers.a.tools.allow[1] [out_of_range]"),
        (of_server("tools: {allow: [{}]}"), "3: servers.a.tools.allow[0] [missing_key]"),
        (of_server("tools: {allow: [{tag: }]}"), "3: servers.a.tools.allow[0] [missing_key]"),
        (of_server("tools: {allow: [{name: ''}]}"), "3: servers.a.tools.allow[0].name [out_of_range]"),
        (of_server("tools: {allow: [{tag: 5}]}"), "3: servers.a.tools.allow[0].tag [wrong_type]"),
        (of_server("tools: {allow: [{readOnly: true}]}"), "3: servers.a.tools.allow[0].readOnly [unknown_key]"),
        (of_server("tools: {deny: [{readOnlyHint: perhaps}]}"), "3: servers.a.tools.deny[0].readOnlyHint [wrong_type]"),
        (of_server("resources: {allow: [5]}"), "3: servers.a.resources.allow[0] [wrong_type]"),
        (
            of_server("prompts: {allow: [{openWorldHint: true}]}"),
            "3: servers.a.prompts.allow[0].openWorldHint [unknown_key]",
        ),
        (of_server(f"tools: {{deny: [{','.join('x' * 1001)}]}}"), "3: servers.a.tools.deny [out_of_range]"),
    ],
)
def test_bad_value_is_found_where_it_stands(text: str, where: str) -> None:
    assert refused(load, text).startswith(f"servers.yaml:{where}")


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
        (of_hub("budget: 349"), "servers.yaml:2: hub.budget [budget_too_small]"),
        (of_hub("budget: 0"), "servers.yaml:2: hub.budget [budget_too_small]"),
        (of_profile("budget: 10"), "servers.yaml:3: profiles.p.budget [budget_too_small]"),
    ],
)
def test_budget_below_what_the_hubs_own_tools_take_is_warned_of(text: str, where: str) -> None:
    (warning,) = load(text).warnings
    assert shown(warning) == where
    assert "350" in warning.message


@pytest.mark.parametrize("text", [of_hub("budget: 350"), of_profile("budget: 350"), of_profile("")])
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
    {"hub": {"store": {"type": "memory", "retention": "24h"}, "task_after": 0}},
    {"hub": {"store": {"path": "${STATE}", "type": "${KIND:-sqlite}", "retention": "${DAYS}"}}},
    {"hub": {"store": "sqlite:streams"}},
    {"hub": {"code": "off", "code_limits": {"memory": "128MiB", "seconds": "1m", "calls": 5, "silence": 90}}},
    {"profiles": {"p": {"code": "off"}}},
    {"hub": {"store": "memory"}},
    {"hub": {"limits": {"detached_calls": 1, "stream_events": 2, "stream_size": "64MiB"}}},
    {"hub": {"clients": {"a": {"soft_deadline": "never"}, "b": {"soft_deadline": 0.5, "matches": ["x*"]}}}},
    {"servers": {"a": {**SERVER, "task": "required", "orphan": "cancel", "idempotent": True}}},
    {"servers": {"a": {**SERVER, "orphan": "1h30m", "per_tool": {"x_*": {"orphan": 5, "task": "never"}}}}},
    {"servers": {"a": {**SERVER, "task": "${TASK:-auto}", "per_tool": {"x": {"orphan": "${DAYS}"}}}}},
    {"defaults": {"task": "always", "orphan": "finish", "idempotent": False}},
]


@pytest.mark.parametrize("instance", ACCEPTED)
def test_valid_settings_load_and_the_dump_loads_as_the_same(instance: dict[str, object]) -> None:
    settings = load(json.dumps(instance)).settings
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings


ENV = {"HOME": "/home/alice", "STATE": "/var/streams", "DAYS": "2d"}


def hub(body: str, env: dict[str, str] | None = None) -> HubSettings:
    text = f"hub:\n  {body}\nservers: {{a: {{command: x}}}}"
    return parse(text, "servers.yaml", ENV if env is None else env, Path("/base")).settings.hub


def loaded_from(text: str) -> Loaded:
    return parse(text, "servers.yaml", ENV, Path("/base"))


@pytest.mark.parametrize(
    ("written", "folder"),
    [("streams", "/base/streams"), ("~/s", "/home/alice/s"), ("'${STATE}/hub'", "/var/streams/hub"), ("", None)],
)
def test_folder_of_the_store_is_relative_to_the_file_and_may_start_at_home(written: str, folder: str | None) -> None:
    assert hub(f"store: {{path: {written}}}").store.path == folder


def test_password_of_a_store_is_secret_and_its_plain_connection_warned_of() -> None:
    text = "hub: {store: {retention: '${DAYS}', path: '${STATE}', type: '${KIND:-sqlite}'}}\nservers: {a: {command: x}}"
    loaded = parse(text, "servers.yaml", ENV, Path("/base"))
    assert (loaded.settings.hub.store.retention, loaded.settings.hub.store.type) == (172800.0, "sqlite")
    assert loaded.secrets == frozenset()
    loaded = loaded_from("hub: {store: 'redis://:p%40ss@localhost'}\nservers: {a: {command: x}}")
    assert {"p%40ss", "p@ss"} <= loaded.secrets
    loaded = loaded_from("hub: {store: 'unix:///run/redis.sock?password=short'}\nservers: {a: {command: x}}")
    assert "short" in loaded.secrets and "short" not in repr(loaded.settings)
    for url, is_warned in (("redis://10.0.0.1", True), ("redis://127.0.0.1", False), ("rediss://10.0.0.1", False)):
        loaded = loaded_from(f"hub: {{store: '{url}'}}\nservers: {{a: {{command: x}}}}")
        assert ["cleartext_url"] * is_warned == [found.code for found in loaded.warnings]


def test_a_text_or_url_is_short_for_a_store() -> None:
    for url in ("redis://localhost:6379/1", "rediss://user:pass@redis.example:6380", "unix:///run/redis.sock?db=2"):
        store = hub(f"store: {url}").store
        assert store == hub(f"store: {{url: '{url}'}}").store == hub(f"store: {{type: redis, url: '{url}'}}").store
        assert (store.type, store.url and store.url.get_secret_value(), store.path) == ("redis", url, None)
    assert hub("store: memory").store == hub("store: {type: memory}").store
    assert hub("store: sqlite").store == hub("store: {}").store
    assert hub("store: sqlite:streams/x").store == hub("store: {path: streams/x}").store


def test_a_store_on_a_server_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.config.schema.hub.find_spec", lambda name: None)
    said = refused(hub, "store: 'redis://localhost'")
    assert said == "servers.yaml:2: hub.store.url [not_installed]"


def test_origins_of_pages_may_end_with_a_slash() -> None:
    origins = ["https://app.example", "vscode-webview://x", "http://[::1]:80"]
    assert hub(f"http: {{cors: ['https://app.example/', '{origins[1]}', '{origins[2]}']}}").http.cors == origins


@pytest.mark.parametrize(("value", "seconds"), [("", None), ("null", None), ("30", 30), ("2m", 120), ("'${IDLE}'", 45)])
def test_connection_of_a_long_call_is_closed_never_or_after_half_a_minute_and_more(
    value: str, seconds: float | None
) -> None:
    assert hub(f"http: {{close_streams_after: {value}}}", {"IDLE": "45s"}).http.close_streams_after == seconds


@pytest.mark.parametrize("value", ["0", "29.9s", "1ms"])
def test_connection_that_would_close_sooner_is_refused(value: str) -> None:
    found = refused(hub, f"http: {{close_streams_after: {value}}}")
    assert found == "servers.yaml:2: hub.http.close_streams_after [out_of_range]"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (of_hub("code: ask"), "servers.yaml:2: hub.code [code_unavailable]"),
        (of_profile("code: all"), "servers.yaml:3: profiles.p.code [code_unavailable]"),
    ],
)
def test_scripts_that_cannot_run_here_are_warned_of_with_the_command(
    text: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "code", "no_such_module")
    (warning,) = load(text).warnings
    assert shown(warning) == where
    assert warning.message.endswith(f"Install it with: {extras.with_extra('code')}")
    monkeypatch.setitem(extras.EXTRAS, "code", "json")
    assert load(text).warnings == ()


def test_no_scripts_need_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "code", "no_such_module")
    for text in (of_hub("code: off"), of_profile("code: off"), of_hub("code_limits: {calls: 5}")):
        assert load(text).warnings == ()


def test_limits_of_scripts_are_those_of_the_engine_unless_they_are_set() -> None:
    assert CodeLimits(**HubSettings().code_limits.model_dump()) == CodeLimits()
    limits = load(of_hub("code_limits: {memory: 128MiB, silence: 2m, seconds: 500ms}")).settings.hub.code_limits
    assert (limits.memory, limits.silence, limits.seconds, limits.calls) == (128 << 20, 120.0, 0.5, 200)


def test_limits_and_rule_of_scripts_hold_at_once() -> None:
    old, new = (load(of_hub(body)).settings for body in ("code: off", "code: ask\n  code_limits: {calls: 5}"))
    changed = plan(old, new)
    assert changed.at_once == ("hub.code", "hub.code_limits.calls") and not changed.next_start
