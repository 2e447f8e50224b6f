"""`mcp-hub login` and `logout` as they are really run, next to a hub that runs: real processes, a browser command."""

import json
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner

from mcp_hub.cli import main
from tests.e2e.client import HttpClient
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub, stdio_hub
from tests.unit.cli.command import command_env
from tests.unit.upstreams.authorization import Authorization, browse
from tests.unit.wire.http_server import HttpServer, serving
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

BROWSER = """
import http.client, sys, urllib.parse

def get(url):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=240)
    connection.request("GET", f"{parts.path}?{parts.query}")
    return connection.getresponse()

open(sys.argv[1], "w").write(sys.argv[2])
get(get(sys.argv[2]).headers["location"])
"""
"""What a browser does whose user agrees; writes down where it was sent."""


def configured(server: HttpServer) -> str:
    return json.dumps({"hub": {"prefix": "never"}, "servers": {"far": {"url": server.url}, "near": {"command": "x"}}})


async def ran(folder: Path, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """The command, while this process goes on serving."""

    def run() -> "subprocess.CompletedProcess[str]":
        settings = {**command_env(folder), **env}
        return subprocess.run(
            [*forked_command(), *args], capture_output=True, text=True, env=settings, cwd=folder, timeout=240
        )

    return await anyio.to_thread.run_sync(run)


async def answer(client: StdioClient, is_right: str) -> Message:
    """What a call comes to, as soon as that is in it; the hub looks for logins every second."""
    with anyio.fail_after(240):
        while True:
            said = await client.call("x")
            if is_right in json.dumps(said):
                return said
            await anyio.sleep(0.1)


async def test_a_hub_that_runs_gets_in_when_its_user_logs_in_and_out_when_he_logs_out(tmp_path: Path) -> None:
    guard = Authorization()
    guard.count = 7_000_000  # tokens that cannot be in a log by chance
    browser, visited = tmp_path / "browser.py", tmp_path / "visited"
    browser.write_text(BROWSER)
    async with serving(guard) as server, stdio_hub(configured(server), tmp_path) as client:
        await client.initialize()
        await client.wait_stderr("mcp-hub login far")
        done = await ran(tmp_path, "login", "far", BROWSER=f"{sys.executable} {browser} {visited} %s")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "Logged in to far.")
        assert done.stdout.strip() == visited.read_text()
        assert "result" in await answer(client, '"content"')
        done = await ran(tmp_path, "logout", "far")
        assert (done.returncode, done.stderr) == (0, "Logged out of far.\n")
        await answer(client, "mcp-hub login far")
        assert "a-700" not in client.stderr + json.dumps(client.transcript)
        assert await client.close() == 0
    (request,) = guard.asked["/token"]
    assert request["grant_type"] == "authorization_code"


async def test_a_login_is_that_of_all_principals_of_a_hub_and_of_no_other_hub(tmp_path: Path) -> None:
    """As docs/shared-logins.md says: its configuration, two hubs with a state folder each."""
    guard, browser = Authorization(), tmp_path / "browser.py"
    browser.write_text(BROWSER)
    tokens = [{"token": f"${{{name}_TOKEN}}", "principal": name} for name in ("alice", "bob")]
    async with serving(guard) as server:
        shared = {**json.loads(configured(server)), "hub": {"tokens": tokens}}
        env = {"alice_TOKEN": "token-of-alice-0123", "bob_TOKEN": "token-of-bob-0123456"}
        for name in ("alice", "bob"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "servers.yaml").write_text(json.dumps(shared))
        logged_in = f"{sys.executable} {browser} {tmp_path / 'visited'} %s"
        assert (await ran(tmp_path / "alice", "login", "far", BROWSER=logged_in, **env)).returncode == 0
        assert "[login_needed]" in (await ran(tmp_path / "bob", "list", **env)).stdout
        async with http_hub(json.dumps(shared), tmp_path / "alice", relays_all=True, **env) as hub:
            for name in ("alice", "bob"):
                async with HttpClient(hub.url, env[f"{name}_TOKEN"]) as client:
                    await client.initialize()
                    said = await client.request("tools/call", {"name": "far_x", "arguments": {}})
                    assert '"content"' in said.text
    assert len(guard.valid) == 1, "both acted with the login of one"


async def test_without_a_browser_the_place_is_printed_for_programs_and_people(tmp_path: Path) -> None:
    guard = Authorization(scope="read", refreshable=False)
    async with serving(guard) as server:
        (tmp_path / "servers.yaml").write_text(configured(server))
        env = {**command_env(tmp_path), "BROWSER": "false"}
        argv = [*forked_command(), "login", "far", "--no-browser"]
        async with await anyio.open_process(argv, env=env, cwd=tmp_path) as process:
            assert process.stdout is not None and process.stderr is not None
            with anyio.fail_after(240):
                page = (await process.stdout.receive()).decode().strip()
                assert page.startswith(f"{guard.base}/authorize?")
                await browse(page, "")
                assert await process.wait() == 0
                said = b"".join([chunk async for chunk in process.stderr]).decode().splitlines()
    assert said == [
        f"far logs in at {guard.base}",
        "Open this page in a browser on this machine:",
        "Logged in to far with scope read. The login cannot be renewed: log in again when it expires.",
    ]


async def test_a_login_that_nobody_makes_ends_with_the_reason(tmp_path: Path) -> None:
    async with serving(Authorization()) as server:
        (tmp_path / "servers.yaml").write_text(configured(server))
        done = await ran(tmp_path, "login", "far", "--no-browser", "--timeout", "1")
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "far" in said and said.endswith(" [login_failed]")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"command": "x"}, 'server "far" is not remote: it does not have a url to log in to'),
        ({"url": "http://a.example/mcp"}, 'server "far" has an http:// url, where others could read'),
        ({"url": "https://a.example/mcp", "bearer": "t"}, 'server "far" already has credentials in bearer or headers'),
        (None, 'there is no server "far". Remote servers: other.'),
    ],
)
def test_where_there_is_nothing_to_log_in_to_the_command_says_why(
    tmp_path: Path, settings: dict[str, str] | None, said: str
) -> None:
    servers = {"other": {"url": "https://b.example/mcp"}} | ({} if settings is None else {"far": settings})
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": servers}))
    for command in ("login", "logout"):
        done = CliRunner().invoke(main, [command, "far", "--config", str(tmp_path / "servers.yaml")])
        assert done.exit_code == 2 and said in done.stderr
