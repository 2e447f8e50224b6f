"""Settings of remote servers: what they may say, in whose words, and that none of it is shown."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.addresses import is_cleartext
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema import hub
from mcp_hub.config.schema.hub import TelemetrySettings
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from tests.unit.config.faults import findings, refused, shown_all

ENV = {"TOKEN": "s3cr3t-token", "HOST": "mcp.example", "SPACED": "s3cr3t token"}
URL = "https://mcp.example/mcp"


def remote(body: str) -> Loaded:
    return parse(f"servers:\n  far:\n    {body}\n", "servers.yaml", ENV, Path("/base"))


def settings(body: str) -> ServerSettings:
    return remote(body).settings.servers["far"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", None),
        *((written, "http") for written in ("type: http", "type: streamable-http", "type: streamableHttp")),
        ("transport: streamable_http", "http"),
        ("transport: sse", "sse"),
        ("{type: streamable-http, transport: streamable-http}", "http"),
    ],
)
def test_transport_is_read_as_other_clients_write_it(written: str, meant: str | None) -> None:
    inner = written.strip("{}")
    own = settings(f"{{url: '{URL}'{', ' if inner else ''}{inner}}}")
    assert (own.url, own.type) == (URL, meant)


def test_what_is_sent_is_secret_wherever_it_was_written() -> None:
    own = settings(f"{{url: '{URL}', bearer: '${{TOKEN}}', headers: {{X-Team: blue}}}}")
    assert own.sent_headers() == {"X-Team": "blue", "Authorization": "Bearer s3cr3t-token"}
    found = remote(
        f"{{url: '{URL}?key=${{TOKEN}}', bearer: 'literal-token', headers: {{X-Key: literal-value, B: some-team}}}}"
    )
    assert found.secrets == {"s3cr3t-token", "literal-token", "literal-value"}
    shown = (
        repr(found.settings)
        + str(found.settings)
        + found.settings.model_dump_json(exclude={"servers": {"far": {"url"}}})
    )
    assert not any(secret in shown for secret in found.secrets)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{url: ftp://x/y}", "url [invalid_url]"),
        ("{url: mcp.example/mcp}", "url [invalid_url]"),
        ("{url: 'https:///mcp'}", "url [invalid_url]"),
        ("{url: 'https://a b/mcp'}", "url [invalid_url]"),
        ("{url: 'https://x:0/mcp'}", "url [invalid_url]"),
        ("{url: 'https://x:99999/mcp'}", "url [invalid_url]"),
        ("{url: 'https://user:s3cr3t@x/mcp'}", "url [invalid_url]"),
        (f"{{url: '{URL}', type: stdio}}", "type [invalid_value]"),
        (f"{{url: '{URL}', type: http, transport: sse}}", "transport [conflicting_keys]"),
        (f"{{url: '{URL}', args: [x]}}", "args [misplaced_key]"),
        (f"{{url: '{URL}', env: {{A: b}}}}", "env [misplaced_key]"),
        (f"{{url: '{URL}', cwd: /}}", "cwd [misplaced_key]"),
        (f"{{url: '{URL}', local: 'a:b'}}", "local [conflicting_keys]"),
        (f"{{url: '{URL}', type: sse, era: modern}}", "era [conflicting_keys]"),
        (f"{{url: '{URL}', headers: {{'a b': c}}}}", "headers [invalid_value]"),
        (f"{{url: '{URL}', headers: {{Host: c}}}}", "headers [conflicting_keys]"),
        (f"{{url: '{URL}', headers: {{Mcp-Session-Id: c}}}}", "headers [conflicting_keys]"),
        (f"{{url: '{URL}', headers: {{A: b, a: c}}}}", "headers [conflicting_keys]"),
        (f'{{url: "{URL}", headers: {{A: "b\\r\\nC: d"}}}}', "headers [invalid_value]"),
        (f"{{url: '{URL}', headers: {{A: 's3cr3t\u00e9'}}}}", "headers [invalid_value]"),
        (f"{{url: '{URL}', bearer: '${{SPACED}}'}}", "bearer [invalid_value]"),
        (f"{{url: '{URL}', bearer: Bearer s3cr3t}}", "bearer [invalid_value]"),
        (f"{{url: '{URL}', bearer: a, headers: {{authorization: b}}}}", "bearer [conflicting_keys]"),
        (
            "{url: 'https://u:s3cr3t@x/', bearer: a b, type: sse, era: modern, headers: {Host: c, 'a b': s3cr3t}}",
            "url [invalid_url]",
        ),
        ("{url: 'https://[', oauth: {}, headers: {Authorization: a}}", "url [invalid_url]"),
        (f"{{url: '{URL}', bearer: '${{NOPE}}'}}", "bearer [variable_not_set]"),
    ],
)
def test_what_cannot_be_used_is_found_and_not_shown(body: str, said: str) -> None:
    assert refused(remote, body) == f"servers.yaml:3: servers.far.{said}"


def test_a_disabled_server_need_not_be_complete() -> None:
    found = remote("{url: '${NOPE}', bearer: '${NOPE}', enabled: false}")
    assert not found.settings.servers["far"].enabled and len(found.warnings) == 2


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://mcp.example/mcp", True),
        ("http://10.0.0.1/mcp", True),
        *((url, False) for url in ("https://mcp.example/mcp", "http://localhost:1/mcp", "http://LOCALHOST/mcp")),
        ("http://127.8.8.8/mcp", False),
        ("http://[::1]:8/mcp", False),
    ],
)
def test_what_can_be_read_on_the_way_is_warned_about(url: str, warned: bool) -> None:
    expected = "servers.yaml:3: servers.far.url [cleartext_url]"
    assert shown_all(remote(f"url: '{url}'").warnings) == ([expected] if warned else [])
    assert is_cleartext(url) is warned


KEYS = "https://auth.example.com/keys"
SECRET = "a-shared-key-of-32-bytes-or-more"
ISSUER = {"issuer": "https://auth.example.com", "jwks_url": KEYS}
HMAC = {"issuer": "https://auth.example.com", "shared_key": SECRET}


def issued(oauth: Any, env: dict[str, str] | None = None, **more: Any) -> Loaded:
    data = {"hub": {"http": {"oauth": oauth}}, "servers": {"a": {"command": "x"}}, **more}
    return parse(yaml.safe_dump(data), "s", env or {}, Path("/base"))


def oauth(*issuers: Any, **more: Any) -> dict[str, Any]:
    return {"resource": "https://hub.example.com/mcp", "issuers": list(issuers) or [ISSUER], **more}


def test_an_issuer_has_keys_or_a_shared_key_that_is_secret() -> None:
    usual = issued(oauth()).settings.hub.http.oauth
    assert usual is not None and usual.leeway == 30 and usual.scopes == []
    (issuer,) = usual.issuers
    assert issuer.accepted_algorithms() == ["RS256", "ES256"] and issuer.principal_claim == "sub"
    found = issued(oauth({**HMAC, "shared_key": "${KEY}"}), {"KEY": SECRET})
    assert found.settings.hub.http.oauth is not None
    (issuer,) = found.settings.hub.http.oauth.issuers
    assert issuer.accepted_algorithms() == ["HS256"] and SECRET in found.secrets and SECRET not in repr(found)
    found = issued(oauth({"issuer": "https://a.example", "jwks_file": "keys.json"}))
    assert found.settings.hub.http.oauth is not None
    assert found.settings.hub.http.oauth.issuers[0].jwks_file == "/base/keys.json"
    here = {"issuer": "http://127.0.0.1:9000", "jwks_url": "http://localhost:9000/keys"}
    assert issued(oauth(here, resource="http://127.0.0.1:8765/mcp")).settings.hub.http.oauth is not None


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ({"issuers": [ISSUER]}, "hub.http.oauth.resource [missing_key]"),
        (oauth() | {"issuers": []}, "hub.http.oauth.issuers [out_of_range]"),
        (oauth({"issuer": "https://a.example"}), "hub.http.oauth.issuers[0] [missing_key]"),
        (oauth({**ISSUER, **HMAC}), "issuers[0].shared_key [conflicting_keys]"),
        (oauth({**ISSUER, "algorithms": ["HS256"]}), "issuers[0].algorithms [missing_key]"),
        (oauth({**HMAC, "algorithms": ["RS256"]}), "issuers[0].algorithms [invalid_value]"),
        (oauth({**ISSUER, "algorithms": ["RS256", "HS256"]}), "[missing_key]"),
        (oauth({**ISSUER, "algorithms": ["none"]}), "issuers[0].algorithms[0] [invalid_value]"),
        (oauth({**ISSUER, "algorithms": []}), "issuers[0].algorithms [out_of_range]"),
        (oauth({**HMAC, "shared_key": "short"}), "issuers[0].shared_key [out_of_range]"),
        (oauth({**HMAC, "algorithms": ["HS512"]}), "issuers[0].shared_key [out_of_range]"),
        (oauth({**ISSUER, "issuer": "http://auth.example.com"}), "issuers[0].issuer [invalid_value]"),
        (oauth({**ISSUER, "jwks_url": "http://auth.example.com/k"}), "issuers[0].jwks_url [invalid_value]"),
        (oauth({**ISSUER, "jwks_url": "file:///etc/passwd"}), "issuers[0].jwks_url [invalid_value]"),
        (oauth({**ISSUER, "jwks_url": "https://u:p@auth.example.com/k"}), "[invalid_value]"),
        (oauth({**ISSUER, "issuer": "https://auth.example.com#x"}), "[invalid_value]"),
        (oauth({**ISSUER, "issuer": "https://auth.example.com?x"}), "issuers[0].issuer [invalid_value]"),
        (oauth({**ISSUER, "issuer": 'https://auth.example.com/"x'}), "issuers[0].issuer [invalid_value]"),
        (oauth(ISSUER, ISSUER), "hub.http.oauth.issuers [duplicate_name]"),
        (oauth(scopes=['a"b']), "hub.http.oauth.scopes[0] [invalid_value]"),
        (oauth(scopes=["a b"]), "hub.http.oauth.scopes[0] [invalid_value]"),
        (oauth(leeway="1h"), "hub.http.oauth.leeway [out_of_range]"),
        (oauth({**ISSUER, "profile": "none"}), "issuers[0].profile [unknown_profile]"),
        (oauth({**ISSUER, "scope_profiles": {"a": "smal"}}), "scope_profiles.a [unknown_profile]"),
        (oauth({**ISSUER, "jwks_uri": KEYS}), "[unknown_key]"),
    ],
)
def test_a_mistake_is_named_with_its_place(section: Any, mistake: str) -> None:
    said = "\n".join(findings(issued, section, profiles={"small": {}}))
    assert mistake in said, said
    assert SECRET not in said and "u:p" not in said


EXAMPLES = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[3] / "docs/security.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split("\n")[1].strip())
def test_examples_of_the_documentation_load(text: str, tmp_path: Path) -> None:
    for name in ("ci-key", ".config/mcp-hub/ci-token"):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x" * 40)
        place.chmod(0o600)
    data = {"servers": {"files": {"command": "x"}}, "profiles": {"review": {}}, **yaml.safe_load(text)}
    found = parse(yaml.safe_dump(data), "s", {"HUB_TOKEN": "y" * 40, "HOME": str(tmp_path)}, tmp_path)
    assert (found.warnings, found.notes) == ((), ()) and found.secrets


PLACE = "http://127.0.0.1:4318"
COLLECTOR = {"TOKEN": "t0ken-of-the-collector"}


def telemetry(section: str, **env: str) -> Loaded:
    text = f"hub:\n  telemetry: {section}\nservers: {{}}\n"
    return parse(text, "servers.yaml", {**COLLECTOR, **env}, Path("/base"))


def test_telemetry_is_sent_only_where_the_section_says_so() -> None:
    assert Settings().hub.telemetry == TelemetrySettings()
    everything = {"OTEL_EXPORTER_OTLP_ENDPOINT": PLACE, "OTEL_TRACES_EXPORTER": "otlp"}
    assert not telemetry("{}", **everything).settings.hub.telemetry.is_on
    assert not telemetry(f"{{endpoint: '{PLACE}', enabled: false}}").settings.hub.telemetry.is_on
    own = telemetry(f"{{endpoint: '{PLACE}', headers: {{Authorization: 'Bearer ${{TOKEN}}'}}}}")
    assert own.settings.hub.telemetry.is_on
    assert "t0ken-of-the-collector" in own.secrets and "t0ken" not in repr(own.settings)
    assert telemetry("{enabled: true}", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=PLACE).settings.hub.telemetry.is_on


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{enabled: true}", "hub.telemetry.enabled [missing_key]"),
        ("{headers: {a: b}}", "hub.telemetry.headers [missing_key]"),
        ("{endpoint: 'collector:4318'}", "hub.telemetry.endpoint [invalid_url]"),
        ("{endpoint: 'http://u:p@collector'}", "hub.telemetry.endpoint [invalid_url]"),
        ("{endpoint: 'http://collector?key=x'}", "hub.telemetry.endpoint [invalid_url]"),
        (f"{{endpoint: '{PLACE}', headers: {{'a b': c}}}}", "hub.telemetry.headers [invalid_value]"),
    ],
)
def test_what_cannot_work_is_said_with_its_place(section: str, expected: str) -> None:
    said = findings(telemetry, section)
    assert said[0].startswith("servers.yaml:2: ") and any(expected in line for line in said)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_NEEDED", ("opentelemetry_that_nobody_has.sdk",))
    assert "[not_installed]" in refused(telemetry, f"{{endpoint: '{PLACE}'}}")
    assert not telemetry("{}").settings.hub.telemetry.is_on
