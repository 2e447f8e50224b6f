"""`account: own`, `hub.accounts` and `${account:NAME}`: what is refused, and with which advice."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.app.accounts import personal
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema.servers import AccountLookup
from mcp_hub.errors import ConfigError, UpstreamUnavailable
from mcp_hub.masking import hide
from mcp_hub.upstreams.accounts.rows import Account

KEY = "A" * 43 + "="
HUB: dict[str, Any] = {
    "accounts": {"key": KEY},
    "tokens": [{"token": "a-token-of-twenty-characters", "principal": "anna"}],
}
REMOTE: dict[str, Any] = {"url": "https://mcp.example.com/mcp", "account": "own"}
LOCAL: dict[str, Any] = {"command": "mail", "account": "own", "sandbox": "on"}


def loaded(server: dict[str, Any], hub: dict[str, Any] = HUB, **more: Any) -> Loaded:
    text = yaml.safe_dump({"hub": hub, "servers": {"mine": server}})
    return parse(text, "servers.yaml", {}, Path("/"), **more)


def findings(server: dict[str, Any], hub: dict[str, Any] = HUB) -> list[str]:
    with pytest.raises(ConfigError) as failure:
        loaded(server, hub)
    return [str(finding) for finding in failure.value.findings]


def test_a_key_and_tokens_are_enough_for_a_remote_server_and_the_key_is_secret() -> None:
    result = loaded(REMOTE)
    assert result.settings.servers["mine"].account == "own" and KEY in result.secrets
    assert result.settings.hub.accounts.keys() == [KEY] and KEY not in repr(result.settings)


@pytest.mark.parametrize(
    ("server", "hub", "advice"),
    [
        (REMOTE, {"tokens": HUB["tokens"]}, "mcp-hub account key"),
        (REMOTE, {"accounts": HUB["accounts"]}, "hub.tokens or hub.http.oauth"),
        ({**LOCAL, "sandbox": "off"}, HUB, "Set sandbox: on"),
        ({**LOCAL, "sandbox": {"mode": "prefer"}}, HUB, "Set sandbox: on"),
        ({**LOCAL, "scope": "session"}, HUB, "Remove scope"),
        ({"skills": "/x", "account": "own"}, HUB, "a command or a url"),
        ({**REMOTE, "bearer": "one-for-all"}, HUB, "${account:NAME}"),
        ({**REMOTE, "headers": {"Authorization": "Basic x"}}, HUB, "${account:NAME}"),
        ({**LOCAL, "args": ["${account:TOKEN}"]}, HUB, "into env"),
        ({**LOCAL, "args": ["--user=${client.principal}"]}, HUB, "one whole argument"),
        ({**LOCAL, "cwd": "${client.principal}"}, HUB, "one whole argument"),
        ({**LOCAL, "command": "${client.principal}"}, HUB, "one whole argument"),
        ({**LOCAL, "env": {"A": "${account:a-b}"}}, HUB, "letters, digits and _"),
        ({"command": "mail", "env": {"A": "${account:A}"}}, HUB, "Set account: own"),
        ({"command": "mail", "args": ["${client.principal}"]}, HUB, "Set account: own"),
    ],
)
def test_what_could_not_keep_accounts_apart_is_refused(
    server: dict[str, Any], hub: dict[str, Any], advice: str
) -> None:
    assert any(advice in finding and "servers.mine" in finding for finding in findings(server, hub))


@pytest.mark.parametrize("key", ["short", "A" * 44, "not base64 at all!", "A" * 40 + "===="])
def test_a_key_that_is_none_is_refused_without_being_shown(key: str) -> None:
    (finding,) = findings(REMOTE, {**HUB, "accounts": {"key": key}})
    assert "mcp-hub account key" in finding and key not in finding


def test_values_of_accounts_are_filled_in_for_one_principal_and_nobody_else() -> None:
    entry = {**LOCAL, "args": ["--user", "${client.principal}"], "env": {"A": "x ${account:ONE} y", "B": "plain"}}
    server = loaded(entry).settings.servers["mine"]
    assert server.account_values == ["ONE"] and "ONE" not in str(server.env)
    mine = server.filled({AccountLookup("ONE"): "${client.cwd}", AccountLookup(): "anna"})
    assert (mine.args, mine.env) == (["--user", "anna"], {"A": "x ${client.cwd} y", "B": "plain"})
    assert mine.account_values == [] and server.account_values == ["ONE"]


def test_one_wrong_server_fails_alone_where_others_are_right() -> None:
    servers = {"mine": {**LOCAL, "sandbox": "off"}, "right": REMOTE}
    result = parse(yaml.safe_dump({"hub": HUB, "servers": servers}), "servers.yaml", {}, Path("/"), partly=True)
    cause = result.settings.failure("mine")
    assert cause is not None and "sandbox: on" in cause.reason and result.settings.failure("right") is None


def test_a_principal_is_no_secret_that_is_masked_in_the_texts_of_everybody() -> None:
    settings = loaded({**LOCAL, "args": ["${client.principal}"], "env": {"WHO_TOKEN": "${client.principal}"}}).settings
    entry = personal("mine", settings.servers["mine"], "result", Account(server="mine", principal="result"))
    assert entry.args == ["result"] and entry.env["WHO_TOKEN"] == "result"
    assert hide("the result of a call") == "the result of a call"


def test_a_stored_value_that_cannot_be_sent_is_an_error_of_the_caller_alone() -> None:
    settings = loaded({**REMOTE, "headers": {"X-Key": "${account:KEY}"}}).settings
    account = Account(server="mine", principal="anna", values={"KEY": "schlüssel"})
    with pytest.raises(UpstreamUnavailable, match="printable ASCII") as failure:
        personal("mine", settings.servers["mine"], "anna", account)
    assert "schl" not in str(failure.value)
