"""Commands without `--url`: they ask the hub that runs for their configuration, and no other."""

import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from mcp_hub.cli.access.running import recorded, running_hub
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import SECONDS, command_env
from tests.upstreams.child import until
from tests.upstreams.launch import entry, events, received

pytestmark = pytest.mark.anyio

TOKENS = [
    {"token": "narrow-token-1", "principal": "bob", "profile": "few"},
    {"token": "wide-token-22", "principal": "ann"},
]
HUB = {"tokens": TOKENS}


def configured(folder: Path, pattern: str = "nothing_*", **more: object) -> str:
    fix = {**entry(journal=folder / "journal"), "tools": {"deny": [pattern]}}
    servers = {"fix": fix, "gone": {"command": "no-such-program-anywhere"}}
    return json.dumps({"servers": servers, "profiles": {"few": {"tools": {"allow": ["fix_echo"]}}}, **more})


def starts(folder: Path) -> int:
    return len(events(folder / "journal", "start"))


async def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """One run of the command beside the hub, without a token in its environment."""

    def blocking() -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in command_env(folder).items() if name != "MCP_HUB_TOKEN"}
        line = [*forked_command(), *args]
        return subprocess.run(line, capture_output=True, text=True, env=env, cwd=folder, timeout=SECONDS)

    return await anyio.to_thread.run_sync(blocking)


@pytest.fixture(scope="module")
async def folder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The folder of a hub that runs, with tokens, and whose server is connected in the era of these commands."""
    made = tmp_path_factory.mktemp("running")
    async with http_hub(configured(made, hub=HUB), made, relays_all=False) as hub:
        await until(lambda: '"upstream_ready"' in hub.stderr and '"command_not_found"' in hub.stderr)
        await run(made, "call", "fix_echo", "--arg", "text=first")
        yield made


@pytest.mark.parametrize(
    ("command", "code", "shown"),
    [
        (["list"], 3, "fix "),
        (["tools", "--server", "fix"], 0, "fix_echo"),
        (["tokens"], 3, "fix_odd"),
        (["tokens", "--profile", "few", "--top", "1"], 3, "fix_echo"),
        (["search", "echo", "--explain"], 0, "fix_echo"),
        (["search", "echo", "--profile", "few", "--json"], 0, "fix_echo"),
        (["call", "fix_echo", "--arg", "text=hello"], 0, "hello"),
        (["call", "fix_echo", "--arg", "text=x", "--detach"], 0, "st_"),
        (["check"], 0, "fix: "),
        (["doctor"], 3, "gone: command_not_found"),
        (["doctor", "fix"], 0, "1 server, all fine"),
        (["streams"], 0, "fix_echo"),
        (["status"], 0, "servers: 1 ready, 1 failed"),
        (["logs", "gone"], 0, "hub: upstream_state state=failed code=command_not_found"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.first(2)
async def test_command_asks_the_running_hub(folder: Path, command: list[str], code: int, shown: str) -> None:
    before = starts(folder)
    done = await run(folder, *command)
    assert (done.returncode, shown in done.stdout) == (code, True), done.stdout + done.stderr
    assert starts(folder) == before, "nothing was started"


@pytest.mark.proof
async def test_findings_of_the_running_hub_have_their_place_in_the_file(folder: Path) -> None:
    lines = (folder / "servers.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, start=1) if "nothing_*" in text)
    for command in ("check", "doctor", "tools", "tokens"):
        done = await run(folder, command)
        assert f"{folder}/servers.yaml:{line}: servers.fix.tools.deny[0]: " in done.stderr, command
    doctor = await run(folder, "doctor", "gone")
    assert "searched: " in doctor.stdout and "no-such-program-anywhere" in doctor.stdout


async def test_local_starts_afresh(folder: Path) -> None:
    begun = starts(folder)
    done = await run(folder, "call", "fix_echo", "--arg", "text=local", "--local")
    assert (done.returncode, done.stdout) == (0, '{"text": "local"}\n')
    assert starts(folder) == begun + 1
    before = len(received(folder / "journal", "tools/call"))
    refused = await run(folder, "list", "--local", "--url", "http://127.0.0.1:1")
    assert refused.returncode == 2 and "exclude each other" in refused.stderr
    assert len(received(folder / "journal", "tools/call")) == before


async def test_verbose_names_the_hub_that_is_asked(folder: Path) -> None:
    done = await run(folder, "list", "-v")
    assert "asking the running hub at http://127.0.0.1:" in done.stderr


async def test_names_that_the_hub_does_not_have_are_mistakes(folder: Path) -> None:
    for command in (["tools", "--server", "fx"], ["doctor", "fx"], ["tokens", "--server", "fx"]):
        done = await run(folder, *command)
        assert done.returncode == 2 and 'Did you mean "fix"?' in done.stderr
    done = await run(folder, "tokens", "--client", "claude-cod")
    assert done.returncode == 2 and "claude-code" in done.stderr


async def test_reload_and_restart_find_the_hub_and_check_waits_for_the_file(tmp_path: Path) -> None:
    async with http_hub(configured(tmp_path), tmp_path, relays_all=False) as hub:
        await until(lambda: '"upstream_ready"' in hub.stderr)
        done = await run(tmp_path, "restart", "fix")
        assert done.returncode == 0 and done.stderr.startswith("fix is ready again (")
        done = await run(tmp_path, "restart", "fx")
        assert done.returncode == 2 and done.stderr == 'There is no server "fx". Did you mean "fix"? [unknown_server]\n'
        await until(lambda: starts(tmp_path) == 2)
        (tmp_path / "servers.yaml").write_text(configured(tmp_path, "other_*"))
        done = await run(tmp_path, "check")
        assert "servers.fix.tools.deny[0]" in done.stderr and "other_*" in done.stderr
        assert starts(tmp_path) == 2
        (tmp_path / "servers.yaml").write_text("servers: {fix: {comand: x}}")
        done = await run(tmp_path, "reload")
        assert done.returncode == 2 and "comand" in done.stderr
        done = await run(tmp_path, "list", "--json")
        assert [own["server"] for own in json.loads(done.stdout)["servers"]] == ["fix", "gone"], "as the hub has it"


def refusals(hub: Hub, number: int) -> bool:
    return hub.stderr.count('"reload_failed"') == number


MISTAKES = (
    ("servers:\n  fix:\n    comand: x\n", 3, "comand"),
    ("servers:\n  fix: {command: x\n", 3, ""),
    ("servers:\n  fix: {command: x}\nhub:\n  expos: full\n  attac: never\n", 4, "what mcp-hub check shows"),
)


async def test_mistake_in_the_file_of_a_running_hub_is_named_with_its_line(tmp_path: Path) -> None:
    file, good = tmp_path / "servers.yaml", json.dumps({"servers": {"fix": entry(journal=tmp_path / "journal")}})
    async with http_hub(good, tmp_path, relays_all=False) as hub:
        await until(lambda: '"upstream_ready"' in hub.stderr)
        for number, (text, line, word) in enumerate(MISTAKES, start=1):
            file.write_text(text)
            await until(partial(refusals, hub, number))
            for command, code, shown in (("status", 0, "1 ready"), ("list", 0, "fix "), ("doctor", 3, "fix: ok")):
                done = await run(tmp_path, command)
                said = done.stdout + done.stderr
                assert f"the running hub keeps its settings from before: {file}:{line}:" in said, (command, said)
                assert "hub_outdated" in said and word in said and "by itself" in said, (command, said)
                assert (done.returncode, shown in done.stdout) == (code, True), (command, said)
        document = json.loads((await run(tmp_path, "doctor", "--json")).stdout)
        assert [problem["code"] for problem in document["around"]] == ["hub_outdated"]
        assert "hub_outdated" in json.loads((await run(tmp_path, "status", "--json")).stdout)["warnings"][0]
        file.write_text(f"{good}\n")
        done = await run(tmp_path, "doctor")
        assert (done.returncode, "hub_outdated" in done.stdout + done.stderr) == (0, False), "it waits for the hub"
        file.unlink()
        await until(partial(refusals, hub, len(MISTAKES) + 1))
        done = await run(tmp_path, "status")
        assert (done.returncode, f"before: {file}: the file does not exist. " in done.stderr) == (0, True), done


async def test_file_that_the_hub_does_not_watch_is_outdated_until_the_reload(tmp_path: Path) -> None:
    def text(**more: object) -> str:
        return json.dumps({"servers": {"fix": entry(journal=tmp_path / "journal")}, "hub": {"watch": False, **more}})

    async with http_hub(text(), tmp_path, relays_all=False) as hub:
        await until(lambda: '"upstream_ready"' in hub.stderr)
        (tmp_path / "servers.yaml").write_text(text(expose="full"))
        done = await run(tmp_path, "doctor")
        assert done.returncode == 3 and "fix:     Run mcp-hub reload.\n" in done.stdout, done
        assert (await run(tmp_path, "reload")).returncode == 0
        assert (await run(tmp_path, "doctor")).returncode == 0


async def test_virtual_server_is_shown_when_a_program_has_registered_tools(tmp_path: Path) -> None:
    async with http_hub(json.dumps({"servers": {}}), tmp_path, relays_all=False) as hub, RestClient(hub) as rest:

        async def listed() -> list[str]:
            done = await run(tmp_path, "list", "--json")
            return [own["server"] for own in json.loads(done.stdout)["servers"]]

        assert await listed() == []
        tools = [{"name": "own", "inputSchema": {"type": "object"}}]
        assert (await rest.ask("PUT", "/executors/e", {"tools": tools})).status_code == 200
        assert await listed() == ["virtual"]


async def test_commands_operate_the_hub_of_their_user_by_its_own_token(tmp_path: Path) -> None:
    """The configuration has no token that operates it."""
    async with http_hub(configured(tmp_path, hub=HUB), tmp_path, relays_all=False) as hub:
        for command in (["reload"], ["restart", "fix"]):
            done = await run(tmp_path, *command)
            assert done.returncode == 0, done.stderr
            refused = await run(tmp_path, *command, "--url", hub.url, "--token", "wide-token-22")
            assert refused.returncode != 0 and "operator: true" in refused.stderr


async def test_without_a_running_hub_there_is_nothing_to_reload(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(configured(tmp_path))
    for command in (["reload"], ["restart", "fix"]):
        done = await run(tmp_path, *command)
        assert done.returncode == 3 and done.stderr.endswith(" [no_running_hub]\n")
        assert str(tmp_path / "servers.yaml") in done.stderr


async def test_hub_of_another_configuration_or_of_a_profile_is_not_asked(tmp_path: Path) -> None:
    async with http_hub(configured(tmp_path), tmp_path, "--profile", "few", relays_all=False):
        assert (await run(tmp_path, "reload")).returncode == 3
    async with http_hub(configured(tmp_path), tmp_path, relays_all=False):
        (tmp_path / "other.yaml").write_text(configured(tmp_path))
        done = await run(tmp_path, "reload", "--config", "other.yaml")
        assert done.returncode == 3 and "other.yaml" in done.stderr


async def test_hub_that_was_killed_leaves_nothing_to_find(tmp_path: Path) -> None:
    async with http_hub(configured(tmp_path), tmp_path, relays_all=False) as hub:
        assert list((tmp_path / "state" / "hubs").iterdir())
        await killed(hub)
        assert (await run(tmp_path, "reload")).returncode == 3
        assert (await run(tmp_path, "status")).returncode == 3
        assert list((tmp_path / "state" / "hubs").iterdir()) == []


async def killed(hub: Hub) -> None:
    hub.send_signal(signal.SIGKILL)
    await hub.process.wait()


def test_newest_of_several_records_is_believed_if_nobody_else_could_write_it(tmp_path: Path) -> None:
    env = {"MCP_HUB_STATE_DIR": str(tmp_path)}
    with ExitStack() as hubs:
        assert running_hub("/a/servers.yaml", env) is None
        hubs.enter_context(recorded("/a/servers.yaml", "http://127.0.0.1:1/mcp", env))
        found = running_hub("/a/servers.yaml", env)
        assert found is not None and (found.url, found.pid) == ("http://127.0.0.1:1/mcp", os.getpid())
        assert running_hub("/b/servers.yaml", env) is None
        (record,) = (tmp_path / "hubs").iterdir()
        assert record.stat().st_mode & 0o777 == 0o600
        record.chmod(0o622)
        assert running_hub("/a/servers.yaml", env) is None
        record.chmod(0o600)
        assert running_hub("/a/servers.yaml", env) == found
    assert list((tmp_path / "hubs").iterdir()) == []


def test_record_that_cannot_be_written_stops_no_hub(tmp_path: Path) -> None:
    (tmp_path / "hubs").write_text("a file")
    with recorded("/a/servers.yaml", "http://127.0.0.1:1/mcp", {"MCP_HUB_STATE_DIR": str(tmp_path)}):
        pass


async def test_open_finds_the_dashboard_and_hands_the_browser_a_file_and_no_token(tmp_path: Path) -> None:
    shown, browser, hubs = tmp_path / "shown", tmp_path / "browser", tmp_path / "state" / "hubs"
    browser.write_text(f'#!/bin/sh\necho "$@" > {shown}.new\nmv {shown}.new {shown}\n')
    browser.chmod(0o755)
    text = 'servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}'
    (tmp_path / "servers.yaml").write_text(text)
    none = await run(tmp_path, "open", "--print")
    assert (none.returncode, "[no_running_hub]" in none.stderr) == (3, True)
    async with http_hub(text, tmp_path) as hub:
        done = await run(tmp_path, "open", "--print")
        page, _, token = done.stdout.strip().partition("#token=")
        assert page == hub.url.removesuffix("mcp") and len(token) == 43
        (record,) = hubs.glob("*.json")
        assert record.stat().st_mode & 0o077 == 0 and json.loads(record.read_text())["operator"] == token
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BROWSER", str(browser))
            done = await run(tmp_path, "open")
        assert done.returncode == 0, done.stderr
        await until(shown.exists)
        (place,) = hubs.glob("open.html")
        assert shown.read_text().strip() == place.as_uri()
        assert token not in shown.read_text() + done.stdout + done.stderr
        assert f"#token={token}" in place.read_text() and place.stat().st_mode & 0o077 == 0
        assert token not in hub.stderr and "dashboard:" not in hub.stderr, "stderr is not a terminal"
    assert not record.exists()


async def test_open_says_that_the_dashboard_is_off(tmp_path: Path) -> None:
    text = 'servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}\nhub: {http: {dashboard: off}}'
    async with http_hub(text, tmp_path):
        done = await run(tmp_path, "open")
    assert (done.returncode, "[no_dashboard]" in done.stderr) == (3, True)
