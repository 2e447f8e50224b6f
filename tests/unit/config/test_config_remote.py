"""Settings of remote servers: what they may say, in whose words, and that none of it is shown."""

import json
from pathlib import Path

import jsonschema
import pytest

from mcp_hub.config.load import Loaded, parse
from mcp_hub.config.remote import is_cleartext
from mcp_hub.config.schema import ServerSettings, json_schema
from mcp_hub.errors import ConfigError

ENV = {"TOKEN": "s3cr3t-token", "HOST": "mcp.example", "SPACED": "s3cr3t token"}
URL = "https://mcp.example/mcp"


def loaded(body: str) -> Loaded:
    return parse(f"servers:\n  far:\n    {body}\n", "servers.yaml", ENV, Path("/base"))


def settings(body: str) -> ServerSettings:
    return loaded(body).settings.servers["far"]


def finding(body: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(body)
    (found,) = str(caught.value).split("\n")
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
    instance = {"servers": {"far": {"url": URL, **dict(part.split(": ") for part in inner.split(", ") if part)}}}
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(instance)


def test_bearer_becomes_the_header_of_its_name() -> None:
    own = settings(f"{{url: '{URL}', bearer: '${{TOKEN}}', headers: {{X-Team: blue}}}}")
    assert own.sent_headers() == {"X-Team": "blue", "Authorization": "Bearer s3cr3t-token"}


def test_what_is_sent_is_secret_wherever_it_was_written() -> None:
    found = loaded(f"{{url: '{URL}?key=${{TOKEN}}', bearer: 'literal-token', headers: {{A: literal-value, B: abc}}}}")
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
        ("{url: ftp://x/y}", "url: expected http:// or https:// with a host"),
        ("{url: mcp.example/mcp}", "url: expected http:// or https:// with a host"),
        ("{url: 'https:///mcp'}", "url: expected http:// or https:// with a host"),
        ("{url: 'https://a b/mcp'}", "url: expected http:// or https:// with a host"),
        ("{url: 'https://x:0/mcp'}", "url: expected http:// or https:// with a host"),
        ("{url: 'https://x:99999/mcp'}", "url: is no URL"),
        ("{url: 'https://user:s3cr3t@x/mcp'}", "url: must not hold a user or a password; use bearer or headers"),
        (f"{{url: '{URL}', type: stdio}}", 'type: expected "http" or "sse"'),
        (f"{{url: '{URL}', type: http, transport: sse}}", "transport: type says something else: keep one of them"),
        (f"{{url: '{URL}', args: [x]}}", "args: belongs to a command; a url has none"),
        (f"{{url: '{URL}', env: {{A: b}}}}", "env: belongs to a command; a url has none"),
        (f"{{url: '{URL}', cwd: /}}", "cwd: belongs to a command; a url has none"),
        (f"{{url: '{URL}', local: 'a:b'}}", "local: a server has a url or a local, not both"),
        (f"{{url: '{URL}', type: sse, era: modern}}", "era: the sse transport belongs to the handshake era"),
        (f"{{url: '{URL}', headers: {{'a b': c}}}}", "headers: holds something that is no name of a header"),
        (f"{{url: '{URL}', headers: {{Host: c}}}}", "headers: Host is set by the hub itself"),
        (f"{{url: '{URL}', headers: {{Mcp-Session-Id: c}}}}", "headers: Mcp-Session-Id is set by the hub itself"),
        (f"{{url: '{URL}', headers: {{A: b, a: c}}}}", "headers: a is given twice"),
        (f'{{url: "{URL}", headers: {{A: "b\\r\\nC: d"}}}}', "headers: A may hold printable ASCII characters only"),
        (f"{{url: '{URL}', headers: {{A: 's3cr3t '}}}}", "headers: A may hold printable ASCII characters only"),
        (f"{{url: '{URL}', bearer: '${{SPACED}}'}}", 'bearer: expected the token alone, without "Bearer" before it'),
        (f"{{url: '{URL}', bearer: Bearer s3cr3t}}", 'bearer: expected the token alone, without "Bearer" before it'),
        (
            f"{{url: '{URL}', bearer: a, headers: {{authorization: b}}}}",
            "bearer: headers has an Authorization already: keep one of them",
        ),
        (
            "{url: 'https://u:s3cr3t@x/', bearer: a b, type: sse, era: modern, headers: {Host: c, 'a b': s3cr3t}}",
            "url: must not hold a user or a password; use bearer or headers; headers: Host is set by the hub itself; "
            "headers: holds something that is no name of a header; bearer: expected the token alone, without "
            '"Bearer" before it, of printable ASCII characters; era: the sse transport belongs to the handshake era',
        ),
        (
            "{url: 'https://[', oauth: {}, headers: {Authorization: a}}",
            "url: is no URL; oauth: bearer or headers has the credentials already: keep one of them",
        ),
        (f"{{url: '{URL}', bearer: '${{NOPE}}'}}", "bearer: environment variable NOPE is not set"),
    ],
)
def test_what_cannot_be_used_is_found_and_not_shown(body: str, said: str) -> None:
    found = finding(body)
    assert found.startswith(said) and "s3cr3t" not in found


def test_a_url_may_be_put_together() -> None:
    assert settings("{url: 'https://${HOST}/mcp'}").url == URL


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
    expected = "servers.yaml:3: servers.far.url: http:// lets everybody on the way read along; use https://"
    assert loaded(f"url: '{url}'").warnings == ((expected,) if warned else ())
    assert is_cleartext(url) is warned


@pytest.mark.parametrize(
    "server",
    [{"url": URL, "command": "x"}, {"url": URL, "type": "pipe"}, {"url": URL, "headers": {"A": 5}}, {"url": 5}],
)
def test_json_schema_refuses_what_would_not_load(server: object) -> None:
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid({"servers": {"far": server}})
    with pytest.raises(ConfigError):
        parse(json.dumps({"servers": {"far": server}}), "servers.json", {}, Path("/"))
