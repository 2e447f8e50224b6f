"""Who may do what to a running hub follows its file; REST, commands and signals have it read that again."""

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.e2e.client import HttpClient
from tests.e2e.reloads import File, applied
from tests.e2e.rest_client import RestClient
from tests.fork_server import forked_command
from tests.interaction.fronts import HANDSHAKE, children, connected, http_hub, is_alive
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import received

pytestmark = pytest.mark.anyio

ALICE, BOB = {"token": "alice-token", "principal": "alice"}, {"token": "bob-token", "principal": "bob"}


async def test_tokens_and_profiles_of_the_http_front_follow_the_file(tmp_path: Path) -> None:
    file = File(tmp_path, "a", tokens=[ALICE, BOB])
    file.more["profiles"] = {"p": {}, "q": {}}
    async with http_hub(file.text, tmp_path, relays_all=False) as hub:
        async with connected(hub, HANDSHAKE, "alice-token") as alice, connected(hub, HANDSHAKE, "bob-token") as bob:
            async with HttpClient(f"{hub.url}/p/p", "bob-token") as in_p:
                await until(lambda: '"upstream_ready"' in hub.stderr)
                assert "a_echo" in await alice.names() and "a_echo" in await bob.names()
                assert (await in_p.initialize()).status == 200
                await until(lambda: any(map(is_alive, file.pids("a"))))
                alive = [pid for pid in file.pids("a") if is_alive(pid)]
                file.hub["tokens"] = [BOB]
                file.more["profiles"] = {"q": {"tools": {"deny": ["a_echo"]}}}
                await applied(file, hub)
                assert isinstance(alice.wire, HttpClient)
                refused = await alice.wire.request("tools/list")
                assert (refused.status, refused.headers["www-authenticate"][:6]) == (401, "Bearer")
                assert "a_echo" in await bob.names()
                assert (await in_p.request("tools/list")).status == 404
        async with HttpClient(f"{hub.url}/p/q", "bob-token") as in_q:
            await in_q.initialize()
            listed = (await in_q.request("tools/list")).last["result"]["tools"]
            assert "a_echo" not in {tool["name"] for tool in listed} and listed
        assert any(map(is_alive, alive)), "a reload starts no server anew"


async def test_rest_restarts_one_server_and_reloads_the_file(tmp_path: Path) -> None:
    file = File(tmp_path, "a", "b")
    async with http_hub(file.text, tmp_path, relays_all=False) as hub, RestClient(hub) as rest:
        await until(lambda: hub.stderr.count('"upstream_ready"') == 2)
        stream = await rest.started("a_slow", {"seconds": 1, "nonce": "x"})
        await until(lambda: received(tmp_path / "a.journal", "tools/call"))
        starts, alive = file.starts("a"), [pid for pid in file.pids("b") if is_alive(pid)]
        answer = await rest.ask("POST", "/servers/a/restart")
        assert (answer.status_code, answer.json()["server"]) == (202, "a")
        assert (await rest.until(stream, "completed", "failed"))["status"] == "completed"
        assert file.starts("a") > starts and any(map(is_alive, alive))
        unknown = await rest.ask("POST", "/servers/c/restart")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_server")
        (tmp_path / "servers.yaml").write_text("servers: [")
        failed = await rest.ask("POST", "/reload")
        assert (failed.status_code, failed.json()["code"]) == (422, "invalid_configuration")
        assert failed.json()["findings"]
        file.add("c")
        file.write()
        done = await rest.ask("POST", "/reload")
        assert (done.status_code, done.json()["added"], done.json()["kept"]) == (200, ["c"], ["a", "b"])


async def test_a_terminal_that_is_closed_ends_the_hub_which_was_started_there(tmp_path: Path) -> None:
    file = File(tmp_path, "a")
    (tmp_path / "servers.yaml").write_text(file.text)
    command = [sys.executable, "-m", "mcp_hub", "serve", "--http", "--port", "0"]
    command += ["--config", str(tmp_path / "servers.yaml")]
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under `nohup` it is ignored, and a hub leaves that as it is
        os.environ["MCP_HUB_STATE_DIR"] = str(tmp_path / "state")
        os.execv(sys.executable, command)
    try:
        seen = b""
        with anyio.fail_after(WAIT):
            while b"/mcp" not in seen:
                seen += await anyio.to_thread.run_sync(os.read, terminal, 4096, abandon_on_cancel=True)
        await until(lambda: file.starts("a"))
        os.kill(pid, signal.SIGHUP)
        with anyio.fail_after(WAIT):
            while b"config_reloaded" not in seen:
                seen += await anyio.to_thread.run_sync(os.read, terminal, 4096, abandon_on_cancel=True)
        under = children(pid)
        os.close(terminal)
        terminal = -1
        with anyio.fail_after(WAIT):
            _, status = await anyio.to_thread.run_sync(os.waitpid, pid, 0, abandon_on_cancel=True)
        pid = 0
        assert os.WIFEXITED(status) and not any(map(is_alive, under))
    finally:
        if terminal >= 0:
            os.close(terminal)
        if pid:
            os.kill(pid, signal.SIGKILL)
            await anyio.to_thread.run_sync(os.waitpid, pid, 0)


async def test_commands_operate_a_running_hub(tmp_path: Path) -> None:
    file = File(tmp_path, "a")
    async with http_hub(file.text, tmp_path, relays_all=False) as hub:
        await until(lambda: '"upstream_ready"' in hub.stderr)

        async def command(*args: str) -> tuple[int, str]:
            line = [*forked_command(), *args, "--url", hub.url]
            done = await anyio.run_process(line, check=False, stderr=subprocess.STDOUT)
            return done.returncode, re.sub(r"\d+\.\d", "T", done.stdout.decode())

        assert await command("restart", "a") == (0, "a is ready again (T s).\n")
        await until(lambda: file.starts("a") == 2)
        code, said = await command("restart", "b")
        assert code == 2 and said == 'There is no server "b". [unknown_server]\n'
        assert await command("reload") == (0, "No changes (1 server).\n")
        file.add("c")
        file.hub["name"] = "other"
        file.write()
        code, said = await command("reload")
        assert code == 0
        assert said == "added: c\nunchanged: a\nfrom the hub's next start: hub.name\n"
        (tmp_path / "servers.yaml").write_text("servers: {c: {comand: x}}")
        code, said = await command("reload")
        assert code == 2 and "comand" in said
