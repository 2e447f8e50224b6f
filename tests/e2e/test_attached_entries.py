"""Each entry that `mcp-hub install` writes starts a hub of the client's own, or joins the background hub."""

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from mcp_hub.onboarding.clients.table import CLIENTS
from rigs.attach.place import Place, echoed, greeted
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

WRITTEN = [name for name, client in CLIENTS.items() if client.is_written]


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A home in which the hub was put into every client."""
    async with Place(tmp_path_factory.mktemp("entries"), servers=("a",)) as place:
        done = await place.command("install", *WRITTEN)
        assert done.returncode == 0, done.stderr
        yield place


def entries(home: Path) -> dict[str, list[str]]:
    """The arguments of each kind of client, as they stand in the files."""
    lines = [line for path in home.rglob("*") if path.is_file() for line in lists_in(path) if "serve" in line]
    commands = [line[line.index("serve") :] for line in lines]
    return {arguments[arguments.index("--client") + 1]: arguments for arguments in commands}


def lists_in(path: Path) -> list[list[str]]:
    """The lists of texts in a client's file."""
    if path.suffix not in (".yaml", ".yml"):
        return [json.loads(text) for text in re.findall(r'\[[^]]*"serve"[^]]*\]', path.read_text())]
    found, waiting = list[list[str]](), [yaml.safe_load(path.read_text())]
    while waiting:
        match waiting.pop():
            case dict() as members:
                waiting += members.values()
            case [str(), *_] as line:
                found.append(line)
            case list() as items:
                waiting += items
    return found


async def test_every_client_has_an_entry(place: Place) -> None:
    assert entries(place.root / "home").keys() == {CLIENTS[name].kind or name for name in WRITTEN}


@pytest.mark.slow
@pytest.mark.first(4)
@pytest.mark.parametrize("kind", dict.fromkeys(CLIENTS[name].kind or name for name in WRITTEN))
@pytest.mark.parametrize("attach", ["always", "never"])
async def test_entry_works_unchanged(place: Place, kind: str, attach: str) -> None:
    place.write({**place.settings, "hub": {**place.settings["hub"], "attach": attach}})
    line = [sys.executable, "-m", "mcp_hub", *entries(place.root / "home")[kind]]
    async with StdioClient(line, place.env, cwd=place.root) as client:
        place.clients.add(client.pid)
        await greeted(client)
        assert (await client.request("tools/list"))["result"]["tools"]
        await echoed(client, kind)
        owners = place.owners("a")
        assert (client.pid in owners) is (attach == "never"), owners
