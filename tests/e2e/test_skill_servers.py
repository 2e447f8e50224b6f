"""Skills of a server in a process of its own, through a hub in this one: as the server sends them, but for the mark."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.app.build import App
from mcp_hub.types import Era
from rigs.conformance.server import skills
from rigs.conformance.suite import ROOT
from tests.unit.fronts.asked import ask
from tests.unit.fronts.skill_folders import skill_hub, write_skill
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

MARK = {"_meta": {"dev.mcp-hub/server": "far"}}
MAIN = "rigs.conformance.server.main"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    far = {"command": sys.executable, "args": ["-m", MAIN], "cwd": str(ROOT)}
    write_skill(tmp_path / "near", "today")
    # it counts from the start of this process, which is that of the test run
    hub = {"first_list_wait": 20 * WAIT, "store": {"type": "memory"}}
    async with skill_hub(tmp_path, {"far": far, "near": tmp_path / "near"}, hub=hub) as app:
        yield app


@pytest.mark.proof
async def test_skills_come_as_their_server_sends_them(app: App) -> None:
    with anyio.fail_after(WAIT):
        while len((listed := await ask(app, "skills/list"))["skills"]) < 2:
            pass  # it waits 10 s for a second connection, and on a busy machine that takes longer
    *far, near = listed["skills"]
    # both pages; every file and digest, the skill inside of another one, and the one that is generated
    assert far == [{**skills.entry(uri), **MARK} for uri in skills.LISTED]
    # the later server's skill of the same place
    assert near["uri"] == "skill://near/today/SKILL.md"
    assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
    for uri in skills.LISTED:
        got = await ask(app, "skills/get", {"uri": uri})
        assert got["skill"] == {**skills.entry(uri), **MARK}
        assert (got["ttlMs"], got["cacheScope"]) == (0, "private")
    # which of the two servers has one that is not listed, a client has to say once
    for uri in (f"hub://far/{skills.UNLISTED}", skills.UNLISTED):
        got = await ask(app, "skills/get", {"uri": uri})
        assert got["skill"] == {**skills.entry(skills.UNLISTED), **MARK} and got["cacheScope"] == "private"
    for uri, text in skills.FILES.items():
        read = await ask(app, "resources/read", {"uri": uri})
        assert read["contents"][0]["text"] == text and MARK["_meta"].items() <= read["_meta"].items()
    folder = await ask(app, "resources/directory/read", {"uri": "skill://pdf-processing/templates"})
    assert [own["uri"] for own in folder["resources"]] == [
        "skill://pdf-processing/templates/invoice.md",
        "skill://pdf-processing/templates/regional",
    ]
    for method in ("skills/get", "resources/directory/read"):
        assert (await ask(app, method, {"uri": "skill://today/nothing"}))["code"] == -32602
    resources: Any = await ask(app, "resources/list", era=Era.HANDSHAKE)
    assert json.dumps(resources).count("skill://pdf-processing/SKILL.md") == 1
