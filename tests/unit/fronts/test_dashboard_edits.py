"""Servers that an operator adds, edits, switches and removes by the dashboard, and what only a terminal may allow."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.app.dashboard.edits import HubEdits, ServerEditor
from mcp_hub.app.limits import Current
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.onboarding.changes.written import ClientRecords, ImportedServer
from mcp_hub.onboarding.servers_file.proposals import MOST, proposals_of
from mcp_hub.onboarding.servers_file.risks import AT_ONCE, reasons_to_ask, refused_url
from mcp_hub.onboarding.servers_file.servers_file import ServersFile
from mcp_hub.protocol.rest.overview import EditBody
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, problem

FAR = "http://127.0.0.1:9/mcp"
SECRET = "q7w8e9r0t1y2u3i4"
SERVERS: dict[str, Any] = {
    "far": {"url": FAR, "headers": {"X-Key": SECRET}, "timeout": "5m", "start": "lazy"},
    "run": {"command": "no-such", "args": ["--token", SECRET], "env": {"API_KEY": SECRET}, "enabled": False},
    "away": {"url": "http://127.0.0.1:9/away", "headers": {"X-Key": "${AWAY_KEY:-none}"}, "start": "lazy"},
}


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with dashboard_hub(tmp_path, servers=SERVERS) as running:
        yield running


def written(peer: DashboardPeer) -> dict[str, Any]:
    servers: dict[str, Any] = yaml.safe_load(peer.app.seen.config.read_text())["servers"]
    return servers


async def edit(peer: DashboardPeer, server: str, change: dict[str, Any] | str, path: str = "/entry") -> Any:
    """The answer to an edit; `change` are keys of the entry that is there (None: without it), or a text."""
    digest, text = "", change
    if server in written(peer):
        entry = await peer.get(f"/entry?server={server}")
        digest = entry["digest"]
        if isinstance(change, dict):
            keys = {**yaml.safe_load(entry["text"]), **change}
            text = yaml.safe_dump({key: value for key, value in keys.items() if value is not None})
    elif isinstance(change, dict):
        text = yaml.safe_dump(change)
    response = await peer.post(path, {"server": server, "text": text, "digest": digest})
    return response.json if response.status == 200 else response


async def test_editor_that_cannot_be_loaded_is_named_and_servers_are_shown() -> None:
    """After an upgrade a hub that runs has other files than those that it began with."""

    def replaced() -> ServerEditor:
        raise ImportError("cannot import name")

    async def reload() -> None:
        raise AssertionError

    edits = HubEdits(
        Current(Settings.model_validate({"servers": {"far": SERVERS["far"]}})), replaced, lambda: True, reload
    )
    assert (await edits.entry("far")).server == "far"
    state = await edits.state("localhost")
    with pytest.raises(Problem, match="Restart it") as refused:
        await edits.edit(EditBody("far", ""), "localhost")
    assert not state.possible and "Restart it" in state.why and refused.value.status == 409


async def test_entry_of_a_server_names_variables_and_headers_and_hides_values(tmp_path: Path) -> None:
    servers = {
        "run": {
            "command": "no-such", "args": ["--token", "abc123def456ghi", "x y"], "env": {"API_KEY": "k1k2k3k4k5"},
            "pass_env": ["LANG"], "cwd": "/tmp", "timeout": "5m", "enabled": False,
        },
        "far": {"url": "https://far.example/mcp?key=q1w2e3r4t5", "headers": {"X-Key": "v1v2v3v4v5"}, "enabled": False},
    }  # fmt: skip
    async with dashboard_hub(tmp_path, servers=servers, tokens=True) as peer:
        facts = {name: (await peer.get(f"/entry?server={name}"))["facts"] for name in ("run", "far", "local")}
        problem(await peer.page("GET", "/entry?server=none").ended(), 404, "unknown_server")
        problem(await peer.page("GET", "/entry?server=run", token=ALICE).ended(), 403, "operator_required")
    run, far, local = facts.values()
    assert (run["kind"], run["text"], run["folder"]) == ("command", "no-such --token '***' 'x y'", "/tmp")
    assert (run["variables"], run["scope"], run["limits"]["timeout"]) == (["API_KEY", "LANG"], "shared", 300)
    assert (far["text"], far["headers"]) == ("https://far.example/mcp?key=***", ["X-Key"])
    assert local["kind"] == "local" and "scope" not in local
    assert not [secret for secret in ("k1k2", "v1v2", "q1w2", "abc123") if secret in str(facts)]


async def test_remote_server_is_added_edited_switched_and_removed_at_once(peer: DashboardPeer) -> None:
    config = peer.app.seen.config
    config.write_text(config.read_text().rstrip())
    assert await edit(peer, "new", {"url": FAR, "headers": {"Authorization": f"Bearer {SECRET}"}}) == {"effect": "now"}
    assert "new" in [server["server"] for server in (await peer.get("/state"))["servers"]["servers"]]
    (secret,) = (config.parent / "secrets").iterdir()
    assert secret.stat().st_mode & 0o777 == 0o600 and SECRET in secret.read_text()
    assert SECRET not in json.dumps(written(peer)["new"]), "in a file of its own"
    assert await edit(peer, "new", {"timeout": "9m", "expose": "search"}) == {"effect": "now"}
    assert await edit(peer, "new", {"timeout": None}) == {"effect": "now"}
    assert written(peer)["new"]["expose"] == "search" and "timeout" not in written(peer)["new"]
    assert await edit(peer, "new", {}) == {"effect": "none"}
    for action, enabled in (("disable", False), ("enable", True)):
        assert (await peer.post("/edits", {"server": "new", "action": action})).json == {"effect": "now"}
        assert peer.app.settings.servers["new"].enabled is enabled
    assert (await peer.post("/edits", {"server": "new", "action": "remove"})).json == {"effect": "now"}
    assert "new" not in written(peer) and "new" not in peer.app.settings.servers
    assert not (await peer.get("/edits")).get("proposals")


RISKY: list[tuple[str, dict[str, Any]]] = [
    ("new", {"command": "touch", "args": ["/tmp/pwned"]}),
    ("new", {"local": "os:system"}),
    ("new", {"skills": "/etc"}),
    ("new", {"url": FAR, "headers": {"X": "${file:/etc/shadow}"}}),
    ("new", {"url": FAR, "headers": {"X": "a ${keyring:x/y} b"}}),
    ("new", {"url": FAR, "bearer": "${cmd:id}"}),
    ("new", {"url": FAR + "/${HOME}"}),
    ("new", {"url": "https://evil.example/mcp", "headers": {"X": "${AWAY_KEY}"}}),
    ("new", {"url": FAR, "tls": {"ca": "/etc/shadow"}}),
    ("new", {"url": FAR, "oauth": {"issuer": "https://evil.example"}}),
    ("new", {"url": "http://10.0.0.1/mcp"}),
    ("new", {"url": "http://metadata.google.internal/x"}),
    ("far", {"url": "https://evil.example/mcp"}),
    ("far", {"url": FAR + "/other"}),
    ("far", {"url": None, "headers": None, "command": "id"}),
    ("far", {"description": "${file:/etc/passwd}"}),
    ("far", {"per_tool": {"x": {"fixed": {"text": "${HOME}"}}}}),
    ("away", {"url": FAR}),
    ("run", {"command": "other"}),
    ("run", {"args": []}),
    ("run", {"env": {"API_KEY": "***", "LD_PRELOAD": "/tmp/x.so"}}),
    ("run", {"cwd": "/tmp"}),
    ("run", {"sandbox": "off"}),
    ("run", {"pass_env": ["HOME"]}),
    ("run", {"scope": "call"}),
    ("run", {"enabled": True}),
    ("run", {"enabled": None}),
]


async def test_whatever_runs_a_program_or_gives_away_a_secret_is_only_proposed(peer: DashboardPeer) -> None:
    before, started = written(peer), dict(peer.app.settings.servers)
    for server, change in RISKY:
        checked = await edit(peer, server, change, "/entry/check")
        assert checked["effect"] == "proposal" and checked["reasons"] and checked["diff"], (server, change)
        done = await edit(peer, server, change)
        assert done == {"effect": "proposal", "command": done["command"]}, (server, change)
        assert done["command"].startswith("mcp-hub approve --config ") and done["command"].endswith(f" {server}")
        assert written(peer) == before and peer.app.settings.servers == started, (server, change)
    (waiting, *others) = (await peer.get("/edits"))["proposals"]
    assert len(others) == 3 and waiting["server"] == "new", "one for each server"
    assert SECRET not in json.dumps([waiting, *others])
    (file,) = (peer.app.seen.config.parent / "state" / "proposals").glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert (await peer.post("/edits", {"server": "new", "action": "withdraw"})).json == {"effect": "now"}
    assert len((await peer.get("/edits"))["proposals"]) == 3


async def test_disabled_command_is_enabled_at_once_only_where_the_page_has_disabled_it(peer: DashboardPeer) -> None:
    assert (await peer.post("/edits", {"server": "run", "action": "enable"})).json["effect"] == "proposal"
    config = peer.app.seen.config
    config.write_text(config.read_text().replace('"enabled": false', '"enabled": true'))
    assert (await peer.post("/v1/reload", {})).status == 200
    for action in ("disable", "enable"):
        assert (await peer.post("/edits", {"server": "run", "action": action})).json == {"effect": "now"}, action
    assert (await peer.post("/edits", {"server": "run", "action": "disable"})).status == 200
    config.write_text(config.read_text().replace("no-such", "other"))
    assert (await peer.post("/edits", {"server": "run", "action": "enable"})).json["effect"] == "proposal"


async def test_what_cannot_be_an_edit_changes_nothing_and_says_why(peer: DashboardPeer) -> None:
    before = peer.app.seen.config.read_bytes()
    wrong: list[tuple[str, dict[str, Any] | str, int, str]] = [
        ("new", {"url": "http://169.254.169.254/latest"}, 422, "not the address of a server"),
        ("new", {"url": "http://[fd00:ec2::254]/"}, 422, "not the address of a server"),
        ("new", {"url": FAR, "bogus": 1}, 422, "unknown key"),
        ("new", {"url": FAR, "timeout": "5 years"}, 422, "duration"),
        ("new", {"url": FAR, "headers": {"X": "***"}}, 422, "stands for a secret"),
        ("new", "url: a\nurl: b", 422, "twice"),
        ("new", "- url", 422, "expected keys"),
        ("new", "url: [", 422, ""),
        ("new", "a: &a [x]\nb: " + "[" * 60 + "]" * 60, 422, ""),
        ("new", "url: " + "x" * 70_000, 413, "larger than"),
        ("--config", {"url": FAR}, 422, "letters, digits"),
        ("a\u202eb", {"url": FAR}, 422, "letters, digits"),
        ("$(id)", {"command": "id"}, 422, "letters, digits"),
        ("far", {"headers": {"X-Other": "***"}}, 422, "stands for a secret"),
    ]
    for server, change, status, text in wrong:
        response = await edit(peer, server, change)
        assert response.status == status and text in response.json["detail"], (server, change, response.body)
        assert SECRET not in str(response.body)
    body = {"server": "far", "text": "url: https://x.example/mcp"}
    problem(await peer.post("/entry", body), 409, "server_exists")
    problem(await peer.post("/entry", {**body, "digest": "old"}), 409, "entry_changed")
    problem(await peer.post("/entry", {**body, "server": "gone", "digest": "old"}), 409, "entry_changed")
    problem(await peer.post("/edits", {"server": "none", "action": "remove"}), 404, "unknown_server")
    assert peer.app.seen.config.read_bytes() == before and not (await peer.get("/edits")).get("proposals")


async def test_check_places_findings_and_looks_nothing_new_up(peer: DashboardPeer, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text(SECRET)
    text = f"url: {FAR}\ntimeout: soon\nretry:\n  attempts: 99\nheaders: {{X: '${{file:canary}}'}}"
    found = await edit(peer, "new", text, "/entry/check")
    assert [(one["line"], one["error"]) for one in found["findings"]] == [(2, True), (4, True)]
    (syntax,) = (await edit(peer, "new", f"url: {FAR}\nst\n", "/entry/check"))["findings"]
    assert syntax["error"] and syntax["line"] in (2, 3) and "not valid YAML" in syntax["message"]
    absent = [await edit(peer, "new", f"url: {FAR}\nbearer: '${{file:{name}}}'", "/entry/check") for name in "ab"]
    (tmp_path / "b").write_text("x")
    again = await edit(peer, "new", f"url: {FAR}\nbearer: '${{file:b}}'", "/entry/check")
    assert again == absent[1] and again["reasons"] == ["it gets ${file:b}"], "not a way to look for files"


async def test_edit_that_the_hub_cannot_use_is_taken_back(peer: DashboardPeer) -> None:
    config = peer.app.seen.config
    config.write_text(config.read_text().replace('"prefix": "never"', '"prefix": "sometimes"'))
    before = config.read_bytes()
    response = await peer.post("/entry", {"server": "new", "text": f"url: {FAR}"})
    assert response.status == 422 and config.read_bytes() == before


async def test_servers_are_changed_only_where_nobody_else_reaches_the_hub(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for root, options, host in (
        (tmp_path / "far", {"is_local": False}, "localhost"),
        (tmp_path, {"http": {"public_url": "https://hub.example"}}, "hub.example"),
        (tmp_path, {"http": {"allowed_hosts": ["hub.example"]}}, "hub.example"),
    ):
        async with dashboard_hub(root, **options) as peer:
            before = peer.app.seen.config.read_bytes()
            headers = {"host": host}
            added = {"server": "x", "text": f"url: {FAR}"}
            for path, body in (
                ("/entry", added), ("/entry/check", added), ("/edits", {"server": "local", "action": "remove"}),
            ):  # fmt: skip
                problem(await peer.post(path, body, headers=headers), 403, "not_on_this_machine")
            state = await peer.get("/edits", headers=headers)
            assert not state["possible"] and "Servers are changed here only where" in state["why"]
            assert peer.app.seen.config.read_bytes() == before


async def test_proposals_are_bounded_and_a_damaged_file_counts_as_none(peer: DashboardPeer, tmp_path: Path) -> None:
    for number in range(MOST):
        assert (await edit(peer, f"n{number}", {"command": "id"}))["effect"] == "proposal"
    problem(await edit(peer, "more", {"command": "id"}), 409, "proposals_full")
    assert (await edit(peer, "n0", {"command": "other"}))["effect"] == "proposal", "in place of its own"
    env = {"MCP_HUB_STATE_DIR": str(tmp_path / "state")}
    proposals = proposals_of(ServersFile(peer.app.seen.config, env))
    assert [one.server for one in proposals.all()][-1] == "n0" and len(proposals.all()) == MOST
    (file,) = (tmp_path / "state" / "proposals").glob("*.json")
    for text in (b"{}", b"[1]", b"\xff", b"[" * 100_000):
        file.write_bytes(text)
        assert proposals.all() == [] and (await peer.get("/edits"))["possible"]


async def test_other_bytes_of_the_file_stay(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path) as peer:
        config = peer.app.seen.config
        settings = json.loads(config.read_text())
        rest = yaml.safe_dump({key: value for key, value in settings.items() if key != "servers"})
        local = json.dumps(settings["servers"]["local"])
        text = f"# mine\nservers:\n  local: {local}\n  far:  # why\n    url: {FAR}  # here\n    timeout: 5m\n{rest}"
        config.write_text(text)
        assert (await peer.post("/v1/reload", {})).status == 200
        assert await edit(peer, "far", {"timeout": "6m"}) == {"effect": "now"}
        assert config.read_text() == text.replace("5m", "6m")


async def test_client_of_an_imported_server_is_named(peer: DashboardPeer, tmp_path: Path) -> None:
    config = str(peer.app.seen.config)
    ClientRecords(tmp_path / "state").add_imported([ImportedServer("cursor", config, "far", "far")])
    assert (await peer.get("/entry?server=far"))["facts"]["client"] == "Cursor"
    assert "client" not in (await peer.get("/entry?server=away"))["facts"]
    schema = await peer.get("/schema")
    assert {"url", "command", "per_tool"} <= schema["properties"].keys() and "ToolSettings" in schema["$defs"]


def test_every_key_of_the_schema_is_at_once_or_asked_for_on_purpose() -> None:
    keys = set(ServerSettings.model_fields)
    asked = {
        "command",
        "local",
        "skills",
        "scripts",
        "args",
        "env",
        "pass_env",
        "cwd",
        "scope",
        "sandbox",
        "oauth",
        "tls",
        "account",
        "passthrough",
    }
    assert keys - AT_ONCE == asked, "a new key of a server: may somebody with a stolen token set it?"
    assert AT_ONCE - keys == {"transport", "auth", "disabled"}


@pytest.mark.parametrize(("url", "reason", "is_refused"), [
    ("http://127.0.0.1:8/mcp", "", False), ("http://localhost/x", "", False), ("https://a.example/mcp", "", False),
    ("http://[::1]/", "", False), ("http://10.1.2.3/", "private", False), ("http://0x0a.1/", "private", False),
    ("http://[::ffff:10.0.0.1]/", "private", False), ("http://192.168.1.1", "private", False),
    ("http://intranet/", "inner", False), ("http://a.local/", "inner", False), ("http://x.internal./", "inner", False),
    ("http://169.254.169.254/", "link-local", True), ("http://2852039166/", "link-local", True),
    ("http://0xa9.254.43518/", "link-local", True), ("http://[fe80::1]/", "link-local", True),
    ("http://[::ffff:169.254.169.254]/", "link-local", True), ("http://100.100.100.200/", "metadata", True),
    ("http://0.0.0.0/", "unspecified", True), ("https://${X}/mcp", "it gets ${X}", False),
])  # fmt: skip
def test_url_of_an_inner_network_is_asked_for_and_metadata_refused(url: str, reason: str, is_refused: bool) -> None:
    reasons = reasons_to_ask(None, {"url": url}, {})
    assert reason in " ".join(reasons) and bool(reasons) == bool(reason)
    assert (refused_url(url) is not None) == is_refused
