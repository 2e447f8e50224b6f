"""Secrets in every place of the configuration, servers that give theirs away, bad clients: none comes out of the hub.

What a server answers to a call is data, and not looked at here.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from tests.e2e.client import HttpClient, Hub, Silent, threaded
from tests.e2e.rest_client import RestClient
from tests.fork_server import forked_command
from tests.interaction.fronts import children, http_hub
from tests.unit.fronts.oauth_tokens import token
from tests.upstreams.child import until
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio

MARK = "c4n4ry"
LEAKY = Path(__file__).with_name("leaky_server.py")
PLACES = ("env", "file", "quote", "arg", "header", "bearer", "query", "path", "token", "shared", "client", "command")
ISSUER = "https://auth.example.com"
RESOURCE = "https://hub.example.com/mcp"
PAGES = ("/v1/tools", "/v1/tokens", "/v1/streams", "/v1/openapi.json", "/v1/nothing", "/nothing", "/metrics", "/readyz")
MORE_PAGES = (
    "/healthz",
    "/livez",
    "/status",
    "/v1/status",
    "/v1/servers",
    "/readyz?verbose",
    "/ui",
    "/.well-known/oauth-protected-resource",
)


def canary(place: str) -> str:
    """Long enough for every rule; the quotes of one have to survive JSON."""
    return f'{MARK}-"{place}"-\\0123456789' if place == "quote" else f"{MARK}-{place}-0123456789abcdef0123456789"


def hits(text: str) -> list[str]:
    """Where a canary is in a text: as it is, or in base64 at any offset."""
    coded = [base64.b64encode(b"\0" * shift + MARK.encode())[4 if shift else 0 : -4].decode() for shift in range(3)]
    found = [at for mark in (MARK, *coded) for at in _all(text, mark)]
    return [text[max(0, at - 120) : at + 60] for at in found]


def _all(text: str, mark: str) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + 1)


class Telltale(Silent):
    """Answers everything with what it was asked, headers included, as the path says; a redirect leads to it."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        challenge = f'Bearer error="{self.path}"'
        elsewhere = f"https://elsewhere.example{self.path}"
        self.answer(int(self.path.split("/")[1]), body, location=elsewhere, www_authenticate=challenge)

    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, self.path)

    do_GET = do_DELETE = do_POST


@pytest.fixture(scope="module")
def telltale() -> Iterator[str]:
    with threaded(Telltale) as url:
        yield url


def leaky(mode: str, **more: Any) -> dict[str, Any]:
    env = {"LEAK_ENV": "${CANARY_ENV}", "LEAK_FILE": "${file:secret}", "LEAK_QUOTE": "${CANARY_QUOTE}"}
    env["LEAK_TOKEN"] = canary("literal")
    env["LEAK_COMMAND"] = "${cmd:cat command-secret}"
    env["LEAK_DATABASE"] = f"postgres://hub:{canary('within')}@db.example/hub"
    restart = {"intensity": 1, "period": "60s"}
    return {"command": sys.executable, "args": [str(LEAKY), mode], "env": env, "restart": restart, **more}


def remote(url: str, status: int, **more: Any) -> dict[str, Any]:
    place = f"{url}/{status}/${{CANARY_PATH}}/mcp?api_key=${{CANARY_QUERY}}&secret={canary('literal')}"
    return {
        "url": place,
        "headers": {"X-Key": "${CANARY_HEADER}", "X-Command": "k-${cmd:cat command-secret}"},
        "bearer": "${CANARY_BEARER}",
        **more,
    }


def configuration(url: str) -> str:
    login = {"client_id": "hub", "client_secret": "${CANARY_CLIENT}"}
    servers = {
        **{mode: leaky(mode) for mode in ("start", "refuse", "list", "serve", "tell")},
        "args": leaky("serve", args=[str(LEAKY), "serve", "--key=${CANARY_ARG}"]),
        "missing": {"command": "/nowhere/${CANARY_ENV}"},
        "locked": {
            "command": sys.executable,
            "env": {"A": "${cmd:sh -c 'cat command-secret | tee /dev/stderr; exit 3'}"},
        },
        **{f"http{status}": remote(url, status) for status in (200, 302, 401, 404, 500)},
        "sse": remote(url, 500, type="sse"),
        "away": remote("http://127.0.0.1:9", 500),
        "login": {"url": f"{url}/401/mcp", "oauth": login},
    }
    oauth = {"issuer": ISSUER, "shared_key": "${CANARY_SHARED}"}
    http = {"oauth": {"resource": RESOURCE, "issuers": [oauth]}}
    hub = {"tokens": [{"token": "${CANARY_TOKEN}", "principal": "alice"}], "http": http}
    hub["history"] = {"arguments": "full"}
    return json.dumps({"hub": hub, "servers": servers}, indent=1)


@dataclass
class Scene:
    """A hub that has been through everything, and what was seen of it; `url` is where the telltale is."""

    root: Path
    hub: Hub
    env: dict[str, str]
    said: dict[str, str] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)

    def look_at_arguments(self) -> None:
        for pid in (self.hub.pid, *children(self.hub.pid)):
            try:
                self.arguments[pid] = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace")
            except OSError:
                continue


def secrets_of(root: Path) -> dict[str, Any]:
    (root / "secret").write_text(canary("file") + "\n")
    (root / "secret").chmod(0o600)
    (root / "command-secret").write_text(canary("command") + "\n")
    return {f"CANARY_{place.upper()}": canary(place) for place in PLACES}


@pytest.fixture(scope="module")
async def scene(telltale: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    root = tmp_path_factory.mktemp("canary")
    env = secrets_of(root)
    async with http_hub(configuration(telltale), root, "--log-level", "debug", **env) as hub:
        scene = Scene(root, hub, env)
        await drive(scene)
        yield scene


async def drive(scene: Scene) -> None:
    """Starts, calls that fail, clients that should not be there, and every page."""
    hub, own = scene.hub, canary("token")
    await until(lambda: all(f'"upstream": "{name}"' in hub.stderr for name in ("start", "refuse", "serve", "args")))
    shown = token(
        {"iss": ISSUER, "aud": RESOURCE, "sub": "bob", "exp": time.time() + 600}, canary("shared").encode(), "HS256"
    )
    async with HttpClient(hub.url, own) as client, RestClient(hub, own) as rest:
        assert (await client.initialize()).status == 200
        scene.look_at_arguments()
        tools = (await client.request("tools/list")).text
        scene.said["tools/list"] = tools
        for place in PLACES:  # their results are data
            told = {"text": canary(place), canary(place): [f"x-{canary(place)}", {"n": f"Bearer {canary(place)}"}]}
            await client.request("tools/call", {"name": "tell_end", "arguments": told})
        for name in (*json.loads(configuration("http://x"))["servers"].keys() - {"tell"}, "nothing"):
            called = {"name": f"{name}_end", "arguments": {}}
            scene.said[f"call {name}"] = (await client.request("tools/call", called)).text
            scene.said[f"modern {name}"] = (await client.request("tools/call", modern(called))).text
            scene.said[f"rest {name}"] = (await rest.call(f"{name}_end", {})).text
        scene.look_at_arguments()
        for method in ("resources/list", "prompts/list", "server/discover", "nothing"):
            scene.said[method] = (await client.request(method)).text
    await visit(scene, (own, shown.decode(), shown.decode()[:-5] + "AAAAA", canary("wrong"), None))
    scene.look_at_arguments()


async def visit(scene: Scene, tokens: tuple[str | None, ...]) -> None:
    """Every page with every token, also where tokens do not belong."""
    parts = urlsplit(scene.hub.url)
    async with httpx2.AsyncClient(base_url=f"{parts.scheme}://{parts.netloc}", timeout=240, verify=False) as http:
        for number, bearer in enumerate(tokens):
            headers = {} if bearer is None else {"authorization": f"Bearer {bearer}"}
            for page in (*PAGES, *MORE_PAGES):
                for method in ("GET", "POST"):
                    answer = await http.request(method, page, headers=headers)
                    scene.said[f"{method} {page} {number}"] = f"{answer.headers}{answer.text}"
            for odd in (f"/v1/tools?access_token={bearer}", f"/mcp?token={bearer}"):
                answer = await http.get(odd)
                scene.said[f"{odd[:10]} {number}"] = f"{answer.headers}{answer.text}"


def command(root: Path, secrets: dict[str, Any], *args: str) -> str:
    """What a command of the same configuration says."""
    env = {**os.environ, **secrets, "MCP_HUB_STATE_DIR": str(root / "state-of-commands")}
    line = [*forked_command(), *args, "--config", str(root / "servers.yaml")]
    done = subprocess.run(line, env=env, cwd=root, capture_output=True, timeout=240, check=False)
    assert b"Traceback" not in done.stderr, done.stderr
    return (done.stdout + done.stderr).decode("utf-8", "replace")


async def test_the_servers_did_tell_and_the_clients_did_ask(scene: Scene) -> None:
    """Otherwise the rest of this file would prove nothing."""
    for name in ("start", "refuse", "serve", "args"):
        assert f'"upstream": "{name}"' in scene.hub.stderr
    assert 'servers.locked.env.A: program \\"sh\\" exited with code 3 and says: ***' in scene.hub.stderr
    assert scene.hub.stderr.count("leaking: ***") >= 4
    assert "***" in scene.said["call serve"] + scene.said["modern serve"] + scene.said["rest serve"]
    assert any("--key=" in line for line in scene.arguments.values()), "the server of the argument ran"
    assert len(scene.said) > 100


async def test_no_canary_is_in_the_log(scene: Scene) -> None:
    assert hits(scene.hub.stderr) == []


async def test_no_canary_is_in_an_answer_or_on_a_page(scene: Scene) -> None:
    assert {name: found for name, text in scene.said.items() if (found := hits(text))} == {}


async def test_no_canary_is_in_the_history(scene: Scene) -> None:
    """Neither over REST, in an export nor in the file, though clients and servers have put them into calls."""
    async with RestClient(scene.hub, canary("token")) as rest:
        page = (await rest.ask("GET", "/history?details=1&limit=200")).text
        assert "calls" in page, page
        shown = [(await rest.ask("GET", f"/history/{call['id']}")).text for call in json.loads(page)["calls"][-3:]]
    told = [call for call in json.loads(page)["calls"] if call["server"] == "tell"]
    assert len(told) == len(PLACES), page
    assert all(call["arguments_masked"] and call["result_masked"] for call in told)
    env = scene.env | {"MCP_HUB_STATE_DIR": str(scene.root / "state")}
    line = [*forked_command(), "history", "export", "--config", str(scene.root / "servers.yaml")]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(line, env={**os.environ, **env}, capture_output=True, timeout=240, check=True)
    )
    assert done.stdout.count(b"\n") >= len(told)
    assert hits("".join((page, *shown, done.stdout.decode()))) == []
    for path in (scene.root / "state").glob("history.db*"):
        assert hits(path.read_bytes().decode("latin-1")) == [], path


async def test_no_canary_is_an_argument_unless_the_configuration_makes_it_one(scene: Scene) -> None:
    allowed = canary("arg")
    for pid, line in scene.arguments.items():
        assert hits(line.replace(f"--key={allowed}", "") if pid != scene.hub.pid else line) == []


async def test_no_canary_is_in_a_file_of_the_hub(scene: Scene) -> None:
    own = {scene.root / "servers.yaml", scene.root / "secret", scene.root / "command-secret"}
    files = [path for path in scene.root.rglob("*") if path.is_file() and path not in own]
    assert files, "the hub keeps something"
    for path in files:
        assert hits(path.read_bytes().decode("latin-1")) == [], path


@pytest.mark.parametrize(
    "args",
    [
        ("check", "--no-start"),
        ("check", "--no-start", "--json"),
        ("doctor", "--wait", "4", "start", "refuse", "serve", "args", "missing", "http401", "locked", "away", "list"),
        ("doctor", "--json", "--wait", "4", "-vv", "start", "refuse", "serve", "http302", "http500", "sse"),
        ("list", "--wait", "4"),
        ("call", "start_end"),
    ],
    ids=lambda args: " ".join(args[:3]),
)
@pytest.mark.first(3)
async def test_no_canary_is_in_what_a_command_says(scene: Scene, args: tuple[str, ...]) -> None:
    said = await anyio.to_thread.run_sync(command, scene.root, scene.env, *args)
    assert hits(said) == [] and len(said) > 20
    assert args[0] != "check" or "args[2]" in said, "that it will be an argument is said"
