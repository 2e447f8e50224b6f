"""Settings of remote servers: what they may say, in whose words, and that none of it is shown."""

from pathlib import Path

import pytest

from mcp_hub.addresses import is_cleartext
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown_all

ENV = {"TOKEN": "s3cr3t-token", "HOST": "mcp.example", "SPACED": "s3cr3t token"}
URL = "https://mcp.example/mcp"


def loaded(body: str) -> Loaded:
    return parse(f"servers:\n  far:\n    {body}\n", "servers.yaml", ENV, Path("/base"))


def settings(body: str) -> ServerSettings:
    return loaded(body).settings.servers["far"]


def finding(body: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(body)
    assert "s3cr3t" not in str(caught.value)
    (found,) = shown_all(caught)
    return found.partition("servers.far.")[2]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", None),
        ("type: http", "http"),
        ("type: streamable-http", "http"),
        ("type: streamableHttp", "http"),
        ("transport: streamable_http", "http"),
        ("transport: sse", "sse"),
        ("{type: streamable-http, transport: streamable-http}", "http"),
    ],
)
def test_transport_is_read_as_other_clients_write_it(written: str, meant: str | None) -> None:
    inner = written.strip("{}")
    own = settings(f"{{url: '{URL}'{', ' if inner else ''}{inner}}}")
    assert (own.url, own.type) == (URL, meant)


def test_bearer_becomes_the_header_of_its_name() -> None:
    own = settings(f"{{url: '{URL}', bearer: '${{TOKEN}}', headers: {{X-Team: blue}}}}")
    assert own.sent_headers() == {"X-Team": "blue", "Authorization": "Bearer s3cr3t-token"}


def test_what_is_sent_is_secret_wherever_it_was_written() -> None:
    found = loaded(
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
    assert finding(body) == said


def test_a_disabled_server_need_not_be_complete() -> None:
    found = loaded("{url: '${NOPE}', bearer: '${NOPE}', enabled: false}")
    assert not found.settings.servers["far"].enabled and len(found.warnings) == 2


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://mcp.example/mcp", True),
        ("http://10.0.0.1/mcp", True),
        ("https://mcp.example/mcp", False),
        ("http://localhost:1/mcp", False),
        ("http://LOCALHOST/mcp", False),
        ("http://127.8.8.8/mcp", False),
        ("http://[::1]:8/mcp", False),
    ],
)
def test_what_can_be_read_on_the_way_is_warned_about(url: str, warned: bool) -> None:
    expected = "servers.yaml:3: servers.far.url [cleartext_url]"
    assert shown_all(loaded(f"url: '{url}'").warnings) == ([expected] if warned else [])
    assert is_cleartext(url) is warned
