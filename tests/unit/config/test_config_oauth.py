"""Settings of logins to remote servers, and the places that may be asked for one."""

from pathlib import Path

import pytest

from mcp_hub.addresses import refused_place
from mcp_hub.app.logins import client_of
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema.servers import OAuthSettings
from mcp_hub.errors import ConfigError
from mcp_hub.upstreams.auth.grants import ClientRegistration, grant_key
from tests.unit.config.faults import findings

ENV = {"SECRET": "s3cr3t-from-env", "EMPTY": ""}
URL = "https://mcp.example/mcp"


def loaded(oauth: str, rest: str = "") -> Loaded:
    text = f"servers:\n  far:\n    url: {URL}\n    oauth: {oauth}\n    {rest}\n"
    return parse(text, "servers.yaml", ENV, Path("/base"))


def settings(oauth: str) -> OAuthSettings:
    found = loaded(oauth).settings.servers["far"].oauth
    assert found is not None
    return found


def test_section_may_be_left_out_and_so_may_all_of_it() -> None:
    assert settings("{}") == OAuthSettings()
    words = parse(f"servers: {{far: {{url: '{URL}', auth: oauth}}}}", "servers.yaml", ENV, Path("/base"))
    assert words.settings.servers["far"].oauth == OAuthSettings()
    servers = "{plain: {url: 'https://a.example'}, own: {url: 'https://a.example', bearer: t0ken}, "
    servers += "header: {url: 'https://a.example', headers: {authorization: x}}, near: {url: 'http://localhost:1'}, "
    servers += "open: {url: 'http://a.example'}, local: {command: x}}"
    found = parse(f"servers: {servers}", "servers.yaml", ENV, Path("/base")).settings.servers
    assert {name: client_of(server) is not None for name, server in found.items()} == {
        **dict.fromkeys(("plain", "near"), True),
        **dict.fromkeys(("own", "header", "open", "local"), False),
    }


def test_all_of_it_reaches_the_login_and_secrets_are_known_as_such() -> None:
    text = (
        "{client_id: me, client_secret: '${SECRET}', token_auth: post, issuer: 'https://auth.example', scopes: [a, b:c]"
    )
    found = loaded(text + ", redirect_port: 7777}")
    client = client_of(found.settings.servers["far"])
    assert client == ClientRegistration(
        client_id="me",
        client_secret="s3cr3t-from-env",
        token_auth="post",
        issuer="https://auth.example",
        scopes=("a", "b:c"),
        redirect_port=7777,
    )
    assert "s3cr3t-from-env" not in repr(found) + repr(found.settings) + repr(client)
    written = loaded("{client_id: me, client_secret: written-here, grant: client_credentials, issuer: 'https://a.b'}")
    assert written.secrets == {"written-here"}


@pytest.mark.parametrize(
    ("oauth", "said"),
    [
        ("{client_secret: x}", "oauth.client_secret [missing_key]"),
        ("{client_id: a, token_auth: post}", "oauth.token_auth [missing_key]"),
        ("{client_id: a, client_metadata_url: 'https://a.b/c'}", "oauth.client_metadata_url [conflicting_keys]"),
        ("{client_metadata_url: 'https://a.b/'}", "oauth.client_metadata_url [invalid_value]"),
        ("{client_metadata_url: 'http://a.b/c'}", "oauth.client_metadata_url [invalid_value]"),
        ("{issuer: 'javascript:x'}", "oauth.issuer [invalid_value]"),
        ("{scopes: ['a b']}", "oauth.scopes [invalid_value]"),
        ("{redirect_port: 0}", "oauth.redirect_port"),
        ("{redirect_port: 70000}", "oauth.redirect_port"),
        ("{grant: password}", "oauth.grant"),
        ("{grant: client_credentials, client_id: a, issuer: 'https://a.b'}", "oauth.grant [missing_key]"),
        ("{grant: client_credentials, client_id: a, client_secret: b}", "oauth.grant [missing_key]"),
        ("{client_id: a, private_key: b}", "oauth.private_key [misplaced_key]"),
        ("{clientid: a}", "clientid"),
    ],
)
def test_what_does_not_fit_is_named(oauth: str, said: str) -> None:
    assert any(said in line for line in findings(loaded, oauth))


def test_a_login_and_a_token_exclude_each_other() -> None:
    for rest in ("bearer: tok", "headers: {AUTHORIZATION: tok}"):
        assert any("oauth [conflicting_keys]" in line for line in findings(loaded, "{}", rest))
    with pytest.raises(ConfigError, match="needs an https:// url"):
        parse("servers: {far: {url: 'http://a.example/mcp', oauth: {}}}", "servers.yaml", ENV, Path("/base"))
    with pytest.raises(ConfigError, match="[misplaced_key]"):
        parse("servers: {far: {command: x, oauth: {}}}", "servers.yaml", ENV, Path("/base"))


def test_logins_of_other_servers_and_clients_are_others() -> None:
    clients = [
        ClientRegistration(),
        ClientRegistration(client_id="a"),
        ClientRegistration(metadata_url="https://a/b"),
        ClientRegistration(client_id="a", is_machine=True),
    ]
    keys = {grant_key(url, client) for url in (URL, URL + "/") for client in clients}
    assert len(keys) == 8 and not any("mcp" in key for key in keys)


@pytest.mark.parametrize(
    "url",
    [
        *("https://auth.example/authorize?x=1", "https://auth.example:8443", "https://10.0.0.1/", "https://1.example/"),
        *("https://[2001:db8::1]/", "https://[64:ff9b::808:808]/", "https://[::ffff:8.8.8.8]/", "https://0x8.8.8.8/"),
    ],
)
@pytest.mark.parametrize("is_near", [True, False])
def test_https_may_be_asked(url: str, is_near: bool) -> None:
    assert refused_place(url, is_near=is_near) is None


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]:8/x", "https://127.0.0.2/"]
)
def test_this_machine_may_be_asked_only_on_behalf_of_a_server_on_it(url: str) -> None:
    assert refused_place(url, is_near=True) is None
    assert refused_place(url, is_near=False) is not None


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1.", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost.", "a.localhost", "LOCALHOST"),
        *("[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]"),
    ],
)
def test_this_machine_is_known_by_every_form_of_its_address(host: str) -> None:
    problem = refused_place(f"https://{host}:8080/x", is_near=False)
    assert problem is not None and "this machine" in problem
    assert refused_place(f"https://{host}:8080/x", is_near=True) is None


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[::a9fe:a9fe]", "2852039166", "0"),
        *("169.254.43518", "[2002:a9fe:a9fe::1]", "[fd00:ec2::254]", "100.100.100.200", "[::ffff:0.0.0.0]"),
        *("127%2e0.0.1", "[fe80::1%25lo]", "[::ffff:224.0.0.1]", "[2001:0:a9fe:a9fe::1]"),
    ],
)
@pytest.mark.parametrize("is_near", [True, False])
def test_metadata_of_clouds_is_never_asked_in_any_form(host: str, is_near: bool) -> None:
    assert refused_place(f"https://{host}/", is_near=is_near) is not None


@pytest.mark.parametrize(
    "url",
    [
        *("javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "vbscript:x", "ftp://a.example/"),
        *("http://a.example/", "https://", "https:///x", "//a.example/x", "/x", "", "https://a.example:99999/"),
        *("https://u:p@a.example/", "https://a.example/ --new-window", 'https://a.example/"x', "https://a.example/\n"),
        *("https://a.example\\@b.example/", "https://ä.example/", "https://169.254.169.254/latest"),
        *(
            "https://[fe80::1]/",
            "https://0.0.0.0/",
            "https://[::]/",
            "https://224.0.0.1/",
            "https://a.example/`id`",
            "https://[::1",
        ),
    ],
)
@pytest.mark.parametrize("is_near", [True, False])
def test_no_other_place_is_asked_or_shown(url: str, is_near: bool) -> None:
    assert refused_place(url, is_near=is_near) is not None
