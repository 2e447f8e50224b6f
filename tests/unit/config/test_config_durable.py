"""Where streams are kept and for how long (`hub.store`, `hub.task_after`, `hub.limits`)."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema.hub import HubSettings
from tests.unit.config.faults import refused

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


def test_store_takes_interpolated_texts_and_keeps_them_out_of_the_secrets() -> None:
    text = "hub: {store: {retention: '${DAYS}', path: '${STATE}', type: '${KIND:-sqlite}'}}\nservers: {a: {command: x}}"
    loaded = parse(text, "servers.yaml", ENV, Path("/base"))
    assert (loaded.settings.hub.store.retention, loaded.settings.hub.store.type) == (172800.0, "sqlite")
    assert loaded.secrets == frozenset()


def test_a_url_is_short_for_a_store_on_a_server() -> None:
    for url in ("redis://localhost:6379/1", "rediss://user:pass@redis.example:6380", "unix:///run/redis.sock?db=2"):
        store = hub(f"store: {url}").store
        assert store == hub(f"store: {{url: '{url}'}}").store == hub(f"store: {{type: redis, url: '{url}'}}").store
        assert (store.type, store.url and store.url.get_secret_value(), store.path) == ("redis", url, None)


def test_a_store_on_a_server_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.config.schema.hub.find_spec", lambda name: None)
    said = refused(hub, "store: 'redis://localhost'")
    assert said == "servers.yaml:2: hub.store.url [not_installed]"


def test_the_password_of_a_store_is_a_secret_however_it_is_written() -> None:
    loaded = loaded_from("hub: {store: 'redis://:p%40ss@localhost'}\nservers: {a: {command: x}}")
    assert {"p%40ss", "p@ss"} <= loaded.secrets
    loaded = loaded_from("hub: {store: 'unix:///run/redis.sock?password=short'}\nservers: {a: {command: x}}")
    assert "short" in loaded.secrets and "short" not in repr(loaded.settings)


def test_a_store_that_others_on_the_network_can_listen_to_is_warned_of() -> None:
    for url, is_warned in (("redis://10.0.0.1", True), ("redis://127.0.0.1", False), ("rediss://10.0.0.1", False)):
        loaded = loaded_from(f"hub: {{store: '{url}'}}\nservers: {{a: {{command: x}}}}")
        assert ["cleartext_url"] * is_warned == [found.code for found in loaded.warnings]


def test_a_text_is_short_for_a_store_and_its_folder() -> None:
    assert hub("store: memory").store == hub("store: {type: memory}").store
    assert hub("store: sqlite").store == hub("store: {}").store
    assert hub("store: sqlite:streams/x").store == hub("store: {path: streams/x}").store


NOT_PUBLIC = ["http://hub.example.com", "https://127.0.0.1", "https://a@b.org", "https://a.org/?x", "https://a.org/#x"]
NO_ORIGINS = ["*", "null", "app.example", "https://*.example", "https://app.example/a", "https://a@app.example"]


def test_origins_of_pages_may_end_with_a_slash() -> None:
    origins = ["https://app.example", "vscode-webview://x", "http://[::1]:80"]
    assert hub(f"http: {{cors: ['https://app.example/', '{origins[1]}', '{origins[2]}']}}").http.cors == origins


@pytest.mark.parametrize(
    ("body", "said"),
    [
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
    ],
)
def test_bad_value_is_found_where_it_stands(body: str, said: str) -> None:
    assert refused(hub, body).startswith(f"servers.yaml:2: hub.{said}")


@pytest.mark.parametrize(("value", "seconds"), [("", None), ("null", None), ("30", 30), ("2m", 120), ("'${IDLE}'", 45)])
def test_connection_of_a_long_call_is_closed_never_or_after_half_a_minute_and_more(
    value: str, seconds: float | None
) -> None:
    assert hub(f"http: {{close_streams_after: {value}}}", {"IDLE": "45s"}).http.close_streams_after == seconds


@pytest.mark.parametrize("value", ["0", "29.9s", "1ms"])
def test_connection_that_would_close_sooner_is_refused(value: str) -> None:
    found = refused(hub, f"http: {{close_streams_after: {value}}}")
    assert found == "servers.yaml:2: hub.http.close_streams_after [out_of_range]"
