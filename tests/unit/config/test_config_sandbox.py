"""The `sandbox` of a server and of `defaults`: its words, its rules, and what is refused."""

import json
from pathlib import Path
from typing import Final

import pytest

from mcp_hub.app.attached.sandboxes import server_sandbox
from mcp_hub.app.readiness import StartFolders
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.plan import plan
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import findings


def settings(server: str, rest: str = "") -> Settings:
    return parse(f"servers: {{a: {{command: x, {server}}}}}\n{rest}", "servers.yaml", {}, Path("/base")).settings


@pytest.mark.parametrize(
    ("value", "mode"),
    [("on", "on"), ("off", "off"), ("true", "on"), ("prefer", "prefer"), ("{net: none}", "on"), ("{mode: off}", "off")],
)
def test_words_are_modes(value: str, mode: str) -> None:
    assert settings(f"sandbox: {value}").effective("a").sandbox.mode == mode


def test_an_own_sandbox_goes_before_that_of_defaults() -> None:
    default = "defaults: {sandbox: {net: none}}"
    assert settings("sandbox: off", default).effective("a").sandbox.mode == "off"
    assert settings("era: follow", default).effective("a").sandbox.net == "none"
    assert settings("era: follow").effective("a").sandbox.mode == "off"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("maybe", "sandbox [invalid_value]"),
        ("[x]", "sandbox [wrong_type]"),
        ("{reed: []}", "sandbox.reed [unknown_key]"),
        ("{read: [/]}", "sandbox.read[0] [invalid_value]"),
        ("{read: [~/a, //]}", "sandbox.read[1] [invalid_value]"),
        ("{write: ['~']}", "sandbox.write[0] [invalid_value]"),
        ("{write: ['~/']}", "sandbox.write[0] [invalid_value]"),
        ("{write: [~other/a]}", "sandbox.write[0] [invalid_value]"),
        ("{read: [data]}", "sandbox.read[0] [invalid_value]"),
        ("{read: [/a/../..]}", "sandbox.read[0] [invalid_value]"),
        ("{read: ['/a/*.txt']}", "sandbox.read[0] [invalid_value]"),
        ("{read: ['/a/x?']}", "sandbox.read[0] [invalid_value]"),
        ("{read: ['/a/[bc]']}", "sandbox.read[0] [invalid_value]"),
        ("{sockets: [agent]}", "sandbox.sockets[0] [invalid_value]"),
        ("{net: all}", "sandbox.net [invalid_value]"),
        ("{net: []}", "sandbox.net [out_of_range]"),
        ("{net: [a.example, 'a.*.example']}", "sandbox.net[1] [invalid_value]"),
        ("{net: ['*']}", "sandbox.net[0] [invalid_value]"),
        ("{net: ['https://a.example/']}", "sandbox.net[0] [invalid_value]"),
        ("{net: ['a.example:99999']}", "sandbox.net[0] [invalid_value]"),
        ("{net: ['127.1']}", "sandbox.net[0] [invalid_value]"),
        ("{net: [1]}", "sandbox.net[0] [wrong_type]"),
        ("{mode: maybe}", "sandbox.mode [invalid_value]"),
    ],
)
def test_a_wrong_rule_is_found_at_its_place(value: str, place: str) -> None:
    assert findings(settings, f"sandbox: {value}") == [f"servers.yaml:1: servers.a.{place}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{read: ['~']}", "opens the whole home folder. Name the folders that the server needs"),
        ("{read: [~other/a]}", 'expected an absolute path, or one that begins with "~/"'),
        ("{write: ['/a/*.txt']}", "globs are not taken: files that come later would be open, too. Name the folder"),
        ("{net: ['a.*.example']}", 'has "*" elsewhere than in front. Write "*.example.com", or name each host'),
        ("{net: ['*.com']}", 'allows every host below ".com". Write at least two parts: "*.example.com"'),
        ("{net: ['*']}", "allows every host. Write net: any, or name the hosts"),
        ("{net: ['[::1']}", "An IPv6 address before a port needs brackets: [2001:db8::1]:443"),
        ("{net: ['fe80::1%eth0']}", "holds '%'. Write the host alone"),
        ("{net: ['a.example:0']}", "has a port that is not a number from 1 to 65535"),
        ("{net: ['a.example:443/x']}", "Write the host alone"),
        ("{net: ['10.0.0.0/8']}", "holds '/'. Write the host alone"),
    ],
)
def test_a_wrong_rule_says_what_to_write(value: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(f"sandbox: {value}")
    assert [text in finding.message for finding in caught.value.findings] == [True]


def test_hosts_are_taken_in_every_form() -> None:
    rule = settings("sandbox: {net: [A.example., '*.b.example', 'c.example:8443', '::1', '[::1]:80', 192.0.2.1]}")
    starts = StartFolders.of(Path("/base/servers.yaml"), Path("/state"))
    sandbox = server_sandbox(rule, "a", {}, starts)
    hosts = [(host.host, host.ports) for host in sandbox.rule.hosts]
    assert hosts == [
        ("a.example", (443, 80)), ("*.b.example", (443, 80)), ("c.example", (8443,)), ("::1", (443, 80)),
        ("::1", (80,)), ("192.0.2.1", (443, 80)),
    ]  # fmt: skip


def test_a_change_restarts_the_servers_that_it_is_for() -> None:
    text = "servers: {a: {command: x}, b: {command: x, sandbox: on}, u: {url: 'https://mcp.example/mcp'}}\n"
    old, new = (parse(text + rest, "s.yaml", {}, Path("/base")).settings for rest in ("", "defaults: {sandbox: on}"))
    change = plan(old, new)
    assert (change.restarted, change.at_once, change.next_start) == (("a",), ("defaults.sandbox.mode",), ())


def test_sandbox_of_a_remote_server_or_of_another_clients_file_is_not_taken() -> None:
    assert findings(
        parse, "servers: {a: {url: 'https://mcp.example/mcp', sandbox: on}}", "servers.yaml", {}, Path("/base")
    ) == ["servers.yaml:1: servers.a.sandbox [misplaced_key]"]
    text = '{"mcpServers": {"a": {"command": "x", "sandbox": "off"}}}'
    loaded = parse(text, ".mcp.json", {}, Path("/base"))
    assert loaded.settings.servers["a"].sandbox is None


NPM: Final = "registry.npmjs.org"


def boxed(rule: object = None, **server: object) -> Loaded:
    """A server of VS Code in a sandbox, whose rule stands in the file."""
    whole: dict[str, object] = {"servers": {"a": {"command": "x", "sandboxEnabled": True, **server}}}
    whole |= {} if rule is None else {"sandbox": rule}
    return parse(json.dumps(whole), "mcp.json", {"HOME": "/home/ann", "DIR": "/data/d", "PATH": "/usr/bin"}, Path("/b"))


@pytest.mark.parametrize(
    ("rule", "server", "write", "net", "note"),
    [
        (None, {}, [], [NPM], ""),
        ({}, {"cwd": "/data/c"}, ["/data/c"], [NPM], ""),
        (
            {"filesystem": {"allowWrite": ["~/out", "/data//x/", "rel", "${env:DIR}/y"]}},
            {"cwd": "/data/c"},
            ["/data/c", "/home/ann/out", "/data/x", "/data/c/rel", "/data/d/y"], [NPM], "",
        ),
        ({"filesystem": {"allowWrite": ["/data/**", "~", "/", "/home"]}}, {}, [], [NPM], "the hub takes no globs"),
        ({"filesystem": {"allowWrite": ["${env:GONE}/x"]}}, {}, [], [NPM], "a variable that is not set"),
        (
            {"filesystem": {"allowWrite": ["/data/a", "/data/b/c"], "denyWrite": ["/data/a/.git", "/data/b"]}},
            {}, [], [NPM], "denyWrite closes /data/a/.git in it",
        ),
        (
            {"filesystem": {"allowWrite": ["/data/a", "/data/bc", "/d/x"], "denyWrite": ["/data/b*", "/d/{x,y}", "/"]}},
            {}, [], [NPM], "",
        ),
        (
            {"filesystem": {"allowWrite": ["/data/a", "/data/bc", "/d/x"], "denyWrite": ["/data/b*", "/d/[xy]/z"]}},
            {}, [], [NPM], "",
        ),
        ({"filesystem": {"denyRead": ["~/.ssh", "/home/ann/work", "/data/z"]}}, {"args": ["/data/a"]}, [], [NPM], ""),
        ({"filesystem": {"allowRead": ["~/notes"]}}, {}, [], [NPM], "only opens more"),
        (
            {"network": {"allowedDomains": ["a.example", "*.b.example", "c.example:8443"]}},
            {}, [], [NPM, "a.example", "*.b.example", "c.example:8443"], "",
        ),
        ({"network": {"allowedDomains": ["*", "https://x.example/"]}}, {}, [], [NPM], "is left out: it"),
        (
            {"network": {"allowedDomains": ["a.example", "x.b.example", "*.c.example", "*.d.example"],
                         "deniedDomains": ["A.example.", "*.b.example", "e.c.example"]}},
            {}, [], [NPM, "*.d.example"], "deniedDomains closes e.c.example",
        ),
        ({"network": {"deniedDomains": [NPM]}}, {}, [], "none", ""),
    ],
)  # fmt: skip
def test_a_sandbox_of_vs_code_is_one_here_and_never_wider(
    rule: object, server: dict[str, object], write: list[str], net: object, note: str
) -> None:
    found = boxed(rule, **server)
    a = found.settings.servers["a"]
    assert a.enabled and found.settings.failure("a") is None, found.warnings
    assert (a.sandbox.mode, a.sandbox.read, a.sandbox.write, a.sandbox.net) == ("on", None, write, net)  # type: ignore[union-attr]
    texts = [one.message for one in found.warnings if one.code == "sandbox_narrowed"]
    assert (bool(texts), note in " ".join(texts)) == (bool(note), True)


def test_a_link_to_what_vs_code_closes_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "work/keys").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work/keys")
    (tmp_path / "all").symlink_to(tmp_path / "work")
    for written, denied in (("work", "link"), ("all", "work/keys"), ("link", "work"), ("all", "link")):
        files = {"allowWrite": [f"{tmp_path}/{written}"], "denyWrite": [f"{tmp_path}/{denied}"]}
        assert boxed({"filesystem": files}).settings.servers["a"].sandbox.write == [], (written, denied)  # type: ignore[union-attr]


def test_a_sandbox_of_vs_code_is_read_in_the_entry_too_but_only_one_and_not_for_a_url() -> None:
    rule = {"network": {"allowedDomains": ["a.example"]}}
    assert boxed(None, sandbox=rule).settings.servers["a"].sandbox.net == [NPM, "a.example"]  # type: ignore[union-attr]
    assert not boxed(rule, sandbox=rule).settings.servers["a"].enabled
    assert boxed(rule, sandboxEnabled=False).settings.servers["a"].sandbox is None
    remote = boxed(rule, command=None, url="https://h.example/mcp").settings.servers["a"]
    assert remote.enabled and remote.sandbox is None
    linked = parse(json.dumps({"servers": {"a": {"command": "x"}}, "sandbox": rule}), "mcp.json", {}, Path("/b"))
    assert linked.settings.servers["a"].sandbox is None, "VS Code starts a server without the switch outside"
