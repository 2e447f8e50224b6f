"""A server with a `${…}` that has no value: alone it has failed, with a code; the file stays valid."""

from pathlib import Path

import pytest

from mcp_hub.app.upstream_factory import UpstreamFactory
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.plan import plan
from mcp_hub.errors import ConfigError
from mcp_hub.notices import Notices
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.process.watchdog import Watchdog

TEXT = """
servers:
  good: {command: x}
  keyed: {command: x, env: {KEY: "${KEY}", OTHER: "${OTHER:-o}"}}
  far: {url: "https://${HOST}/mcp", bearer: "${TOKEN}", disabled: false}
  filed: {command: x, args: ["${file:none}"], timeout: "${TIME}"}
"""


def lenient(text: str = TEXT, **env: str) -> Loaded:
    return parse(text, "servers.yaml", env, Path("/base"), lenient=True)


@pytest.mark.parametrize(
    ("name", "code", "named"),
    [("keyed", "variable_not_set", "KEY"), ("far", "variable_not_set", "HOST"), ("filed", "file_unreadable", "none")],
)
def test_server_has_failed_with_the_code_and_the_others_stay(name: str, code: str, named: str) -> None:
    loaded = lenient()
    cause = loaded.settings.failure(name)
    assert cause is not None and cause.code == code and named in cause.reason
    assert loaded.settings.failure("good") is None and loaded.settings.servers["good"].enabled
    assert {warning.code for warning in loaded.warnings} == {"variable_not_set", "file_unreadable"}


def test_upstream_of_such_a_server_says_why_and_is_not_started() -> None:
    memory = EraCache(None)
    factory = UpstreamFactory({}, "/base", memory, SystemClock(), Notices(), Watchdog(SystemClock()))
    status = factory.make(lenient().settings, "keyed").status()
    assert (status.state, status.code) == (UpstreamState.FAILED, "variable_not_set") and "KEY" in (status.reason or "")


def test_value_that_comes_later_starts_the_server() -> None:
    change = plan(lenient().settings, lenient(KEY="k").settings)
    assert change.restarted == ("keyed",) and set(change.kept) == {"good", "far", "filed"}
    text = 'servers: {a: {url: "https://a.example/mcp", bearer: "${ONE}"}}'
    other = plan(lenient(text).settings, lenient(text.replace("ONE", "TWO")).settings)
    assert other.restarted == ("a",)  # so that it names the variable of now


def test_other_mistakes_and_the_strict_check_are_errors_as_before() -> None:
    with pytest.raises(ConfigError):
        lenient(TEXT + "  bad: {command: x, argz: []}\n")
    with pytest.raises(ConfigError) as refused:
        parse(TEXT, "servers.yaml", {}, Path("/base"))
    assert {finding.code for finding in refused.value.findings} == {"variable_not_set", "file_unreadable"}
    with pytest.raises(ConfigError):
        lenient('hub: {tokens: [{token: "${NO}", principal: p}]}\nservers: {}\n')
