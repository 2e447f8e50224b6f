"""Environments of clients and a background hub: those that share it, and the variables that its servers get."""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rigs.attacks.outside import hub_environment_is_read
from tests.e2e.background import Background
from tests.fork_server import forked_command
from tests.interaction.hub_process import written
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

DESKTOP = {"LOGNAME": "ann", "USER": "ann", "SHELL": "/bin/sh", "TERM": "dumb", "PATH": "/usr/bin:/bin"}
"""The variables that a client of the SDKs passes on."""
SESSION = {
    **DESKTOP, "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "LC_TIME": "en_DK.UTF-8", "TZ": "Asia/Tokyo",
    "XDG_SESSION_ID": "7", "XDG_DATA_DIRS": "/usr/share", "XDG_CACHE_HOME": "/tmp/cache-of-ann", "DISPLAY": ":7",
    "SSH_AUTH_SOCK": "/tmp/agent-of-ann", "AWS_PROFILE": "prod", "DOCKER_HOST": "unix:///tmp/docker-of-ann",
    "TMPDIR": "/tmp/tmp-of-ann", "EDITOR": "vi", "GITHUB_TOKEN": "token-of-ann",
}  # fmt: skip
CLIENTS: dict[str, dict[str, str]] = {
    "desktop": DESKTOP,
    "venv": {
        **SESSION, "VIRTUAL_ENV": "/proj/.venv", "VIRTUAL_ENV_PROMPT": "x", "PYTHONPATH": "/proj/src", "PS1": "$ ",
        "PATH": "/proj/.venv/bin:/usr/bin:/bin", "PIP_REQUIRE_VIRTUALENV": "1", "UV_PROJECT_ENVIRONMENT": "/proj/.venv",
        "UV_CACHE_DIR": "/proj/cache", "PIP_CACHE_DIR": "/proj/cache", "UV_PUBLISH_TOKEN": "token-of-uv",
    },
    "npm": {
        **SESSION, "npm_config_cache": "/proj/.npm", "npm_config_user_agent": "npm/10", "npm_command": "exec",
        "npm_execpath": "/usr/lib/npm-cli.js", "npm_lifecycle_event": "npx", "INIT_CWD": "/proj", "NODE": "/bin/node",
        "npm_config_registry": "https://npm.corp.example/", "npm_config_noproxy": "", "npm_package_json": "/p/p.json",
        "NPM_CONFIG__AUTH": "token-of-npm",
    },
    "editor": {
        **SESSION, "TERM": "xterm-256color", "TERM_PROGRAM": "vscode", "VSCODE_IPC_HOOK_CLI": "/x.sock", "LANG": "C",
        "GIT_ASKPASS": "/x/askpass.sh", "ELECTRON_RUN_AS_NODE": "1", "NODE_OPTIONS": "--require=/x", "TMPDIR": "/tmp/e",
        "NO_PROXY": "", "XDG_CONFIG_DIRS": "/etc/xdg/x", "OTEL_SERVICE_NAME": "editor",
    },
}  # fmt: skip
GIVEN = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "MCP_HUB_CHILD", "MCP_HUB_INSTANCE"}
"""The variables that the hub itself gives a server."""


@asynccontextmanager
async def client(hubs: Background, env: Mapping[str, str]) -> AsyncIterator[StdioClient]:
    """A client with this environment and no other."""
    line = [*forked_command(), "serve", "--config", str(hubs.root / "servers.yaml"), "--attach", "always"]
    running = StdioClient(line)
    state, runtime = str(hubs.root / "state"), str(hubs.runtime)
    running.env = {"HOME": str(hubs.root), **env, "MCP_HUB_STATE_DIR": state, "XDG_RUNTIME_DIR": runtime}
    async with running:
        await running.initialize()
        yield running


async def environment(running: StdioClient, server: str = "a") -> dict[str, str]:
    """The environment of a server's process."""
    answer = await running.call(f"{server}_env")
    found: dict[str, str] = json.loads(answer["result"]["content"][0]["text"])
    return found


def configure(hubs: Background, **keys: object) -> None:
    """Writes the configuration of one server, which has these keys."""
    settings = json.loads(servers_yaml({"a": argv(era="handshake")}))
    settings["servers"]["a"] |= keys
    written(hubs.root, json.dumps(settings))


@pytest.mark.first(1)
@pytest.mark.parametrize("first", CLIENTS)
async def test_clients_of_every_kind_share_one_hub_whose_servers_get_nothing_of_the_first(
    hubs: Background, first: str
) -> None:
    configure(hubs)
    for name in dict.fromkeys([first, *CLIENTS]):
        async with client(hubs, CLIENTS[name]) as running:
            env = await environment(running)
            assert len(hubs.living) == 1, name
    assert env["LANG"] in ("C.UTF-8", "en_US.UTF-8")
    assert env.keys() <= GIVEN
    assert not {"token-of-ann", "token-of-uv", "token-of-npm"} & {*env.values()}


async def test_another_index_or_trust_anchor_means_another_hub_and_status_names_the_variable(
    hubs: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(hubs)
    reach = {
        "PIP_INDEX_URL": "https://pypi.corp.example/simple",
        "UV_INDEX_CORP": "x",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
    }
    for name in reach:
        monkeypatch.delenv(name, raising=False)  # of this machine, for the command
    async with client(hubs, DESKTOP) as plain, client(hubs, {**DESKTOP, **reach}) as other:
        assert not reach.keys() & (await environment(plain)).keys()
        assert (await environment(other)).items() >= reach.items()
        assert len(hubs.living) == 2
        rows = [row["variables"] for row in hubs.command("status", "--json")["hubs"]]
    assert [name for row in rows for name, same in row.items() if not same and name in reach] == sorted(reach)
    notes = b"".join(place.read_bytes() for folder in hubs.folders for place in folder.glob("variables"))
    assert b"PIP_INDEX_URL" in notes and b"pypi.corp" not in notes


async def test_variables_under_pass_env_reach_the_server_and_belong_to_the_scope(hubs: Background) -> None:
    configure(hubs, pass_env=["SSH_AUTH_SOCK", "MISSING"], env={"TZ": "UTC"})
    async with client(hubs, SESSION) as ann, client(hubs, {**SESSION, "SSH_AUTH_SOCK": "/tmp/agent-of-bob"}) as bob:
        for running, agent in ((ann, "/tmp/agent-of-ann"), (bob, "/tmp/agent-of-bob")):
            env = await environment(running)
            assert (env.get("SSH_AUTH_SOCK"), env["TZ"], "AWS_PROFILE" in env) == (agent, "UTC", False)
        assert len(hubs.living) == 2


async def test_hubs_of_the_clients_own_give_servers_the_same_and_the_session(hubs: Background) -> None:
    configure(hubs, pass_env=["AWS_PROFILE"])
    line = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(hubs.root / "servers.yaml"), "--attach", "never"]
    running = StdioClient(line)
    state = str(hubs.root / "state")
    running.env = {**CLIENTS["venv"], "HOME": str(hubs.root), "PIP_INDEX_URL": "i", "MCP_HUB_STATE_DIR": state}
    async with running:
        await running.initialize()
        env = await environment(running)
    assert {
        "LANG": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "AWS_PROFILE": "prod",
        "PIP_INDEX_URL": "i",
    }.items() <= env.items()
    unwanted = {"VIRTUAL_ENV", "PYTHONPATH", "UV_CACHE_DIR", "PIP_CACHE_DIR", "UV_PUBLISH_TOKEN", "SSH_AUTH_SOCK"}
    assert not {*unwanted, "DOCKER_HOST", "DISPLAY", "XDG_RUNTIME_DIR", "GITHUB_TOKEN"} & env.keys()
    assert os.environ.get("HOME") != env["HOME"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is hidden")
async def test_a_server_of_a_background_hub_reads_no_environment_of_hub_and_client(tmp_path: Path) -> None:
    assert not await hub_environment_is_read(tmp_path, "always")
