"""Servers and clients that put a secret at every place of every text that the hub may cut: no piece of it is shown."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcp_hub import masking
from mcp_hub.wire.bodies import chunks
from mcp_hub.wire.responses import refusal
from tests.e2e.client import HttpClient, Hub
from tests.e2e.cut_server import FORMS, SECRET, texts, whole
from tests.e2e.rest_client import RestClient
from tests.e2e.test_secrets_canary import command
from tests.interaction.fronts import http_hub
from tests.upstreams.child import until
from tests.upstreams.messages import modern

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SERVER = Path(__file__).with_name("cut_server.py")
KINDS = ("progress", "log", "ask", "broken", "noise")
REFUSING = 4
"""Servers that refuse the handshake, for each form; each has its texts begin elsewhere."""
ASCII = SECRET.replace("é", "e")
"""A secret as headers can have it."""
PIECE = {"hex": 10}
"""Characters that only a piece of the secret has in a row, where it is not 5."""


def pieces(form: str) -> set[str]:
    spelled, size = FORMS[form](SECRET), PIECE.get(form, 5)
    return {spelled[at : at + size] for at in range(len(spelled) - size + 1)}


ALL_PIECES = {piece for form in FORMS for piece in pieces(form)}


def hits(text: str) -> list[str]:
    """The surroundings of each piece; a text of ours is JSON itself now and then."""
    found = {
        text.find(piece) for shown in (text, text.replace("\\\\", "\\").replace('\\"', '"')) for piece in ALL_PIECES
    }
    return [text[max(0, at - 100) : at + 60] for at in sorted(found - {-1})][:3]


def configuration() -> str:
    env = {"CUT_SECRET": "${CUT_SECRET}"}
    servers: dict[str, Any] = {}
    for form in FORMS:
        servers[form] = {"command": sys.executable, "args": [str(SERVER), form], "env": env}
        for number in range(REFUSING):
            refusing = {**env, "CUT_PAD": str(number * 7)}
            servers[f"no{number}{form}"] = {
                "command": sys.executable,
                "args": [str(SERVER), f"refuse-{form}"],
                "env": refusing,
                "restart": {"intensity": 1, "period": "60s"},
            }
    return json.dumps({"hub": {"max_name_length": 64}, "servers": servers})


@dataclass
class Scene:
    """A hub whose servers and clients have said all that they can."""

    root: Path
    hub: Hub
    env: dict[str, Any]
    said: dict[str, str] = field(default_factory=dict)


@pytest.fixture(scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    root = tmp_path_factory.mktemp("cut")
    env: dict[str, Any] = {"CUT_SECRET": SECRET}
    async with http_hub(configuration(), root, "--log-level", "debug", **env) as hub:
        scene = Scene(root, hub, env)
        await drive(scene)
        yield scene


async def drive(scene: Scene) -> None:
    hub = scene.hub
    await until(lambda: all(f'"upstream": "{name}"' in hub.stderr for name in json.loads(configuration())["servers"]))
    async with HttpClient(hub.url) as client, RestClient(hub) as rest:
        assert (await client.initialize()).status == 200
        for form in FORMS:
            for pad, text in list(enumerate(texts(form)))[:: 1 if form == "plain" else 4]:
                await ask(scene, client, rest, f"{form} {pad}", text)
            for pad in range(0, len(texts(form)), 3):
                for kind in KINDS:
                    arguments = {"kind": kind, "pad": pad}
                    called = {"name": f"{form}_end", "arguments": arguments}
                    answer = await client.request("tools/call", called)
                    if kind == "broken":
                        scene.said[f"broken {form} {pad}"] = json.dumps(answer.last.get("error", {}).get("message"))
            died = await client.request("tools/call", {"name": f"{form}_end", "arguments": {"kind": "die"}})
            scene.said[f"died {form}"] = died.text
        for page in ("status", "servers", "servers?verbose", "nothing"):
            scene.said[page] = (await rest.ask("GET", f"/{page}")).text


async def ask(scene: Scene, client: HttpClient, rest: RestClient, name: str, text: str) -> None:
    """What a client may name that does not exist, once each; the errors quote it."""
    said = whole(text, 2000)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("tools/call", {"name": said}),
        ("prompts/get", {"name": said}),
        ("resources/read", {"uri": f"x://{said}"}),
        ("completion/complete", {"ref": {"type": said}, "argument": {"name": "a", "value": ""}}),
        ("logging/setLevel", {"level": said}),
        ("tools/list", {"cursor": said}),
        ("tools/call", {"name": "find_tools", "arguments": {"query": "", "server": said}}),
        ("tools/call", {"name": "run_tool", "arguments": {"name": said}}),
        ("tools/call", {"name": "read_result", "arguments": {"id": said, "path": said, "grep": f"({said}"}}),
    ]
    for number, (method, params) in enumerate(requests):
        answer = (await client.request(method, params)).last
        scene.said[f"{number} {method} {name}"] = json.dumps(
            answer.get("error", {}).get("message", answer.get("result"))
        )
    scene.said[f"modern {name}"] = json.dumps(
        (await client.request("tools/call", modern({"name": said}))).last.get("error", {}).get("message")
    )
    for path in ("/streams?limit=", "/tools?format=", "/tools?expose=", "/servers/"):
        scene.said[f"{path} {name}"] = (
            await rest.ask("GET", f"{path}{httpx2.QueryParams({'a': whole(said, 1500)})}")
        ).text


async def test_servers_and_clients_said_it(scene: Scene) -> None:
    """Otherwise the rest of this file would prove nothing."""
    assert scene.hub.stderr.count("***") > 1000
    assert all("***" in scene.said[f"0 tools/call {form} 0"] for form in FORMS)
    assert all("***" in scene.said[f"died {form}"] for form in FORMS), scene.said["died plain"]
    assert hits(f"x{SECRET[2:8]}") and all(hits(texts(form)[0]) for form in FORMS)


async def test_no_piece_is_in_the_log(scene: Scene) -> None:
    assert {line[:80]: found for line in scene.hub.stderr.splitlines() if (found := hits(line))} == {}


async def test_no_piece_is_in_an_error_or_on_a_page(scene: Scene) -> None:
    assert {name: found for name, text in scene.said.items() if (found := hits(text))} == {}


async def test_no_piece_is_in_the_logs_of_servers(scene: Scene) -> None:
    files = list(scene.root.rglob("logs/**/*.jsonl"))
    assert files
    for path in files:
        assert hits(path.read_text("utf-8")) == [], path


async def test_no_piece_is_in_what_a_command_says(scene: Scene) -> None:
    said = await anyio.to_thread.run_sync(
        command,
        scene.root,
        scene.env,
        "doctor",
        "--json",
        "-vv",
        "--wait",
        "10",
        "plain",
        "no0url",
        "no1json",
        "no2hex",
    )
    assert "***" in said and hits(said) == []


@pytest.fixture
def learned() -> Iterator[None]:
    masking.learn([ASCII])
    yield
    masking.forget()


@pytest.mark.parametrize("form", FORMS)
async def test_no_piece_is_in_the_error_for_an_http_response(form: str, learned: None) -> None:
    for text in texts(form, ASCII):
        plain = whole(text, 3000)
        headers = {"location": f"https://x/{plain}", "content-type": f"x/{plain}", "www-authenticate": plain}
        for status in (200, 302, 401, 500):
            response = httpx2.Response(status, headers=headers, request=httpx2.Request("POST", "https://x/"))
            error = refusal("s", response, plain)
            assert hits(f"{error} {error.encoded().decode()}") == []
        with pytest.raises(httpx2.DecodingError) as raised:
            chunks(httpx2.Response(200, headers={"content-encoding": plain}))
        assert hits(masking.hide(str(raised.value))) == []
