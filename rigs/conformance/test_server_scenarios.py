"""The suite's server scenarios against the hub, in front of a server of our own.

The hub has one upstream, one process for all scenarios of an arrangement, whatever era its clients and that upstream
speak; `http` reaches the same server over Streamable HTTP.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rigs.clients.install import NotInstalled
from rigs.conformance.arranged import arranged, fastmcp_server, hub_before
from rigs.conformance.suite import (
    SERVER_SCENARIOS,
    SKILL_SCENARIOS,
    TASK_SCENARIOS,
    run_server_scenario,
    run_server_scenarios,
    run_skill_scenario,
    run_task_scenario,
)
from tests.e2e.client import HttpClient
from tests.interaction.fronts import replica_count

pytestmark = pytest.mark.anyio

HANDSHAKE = ("2025-06-18", "2025-11-25")
ALL = tuple(SERVER_SCENARIOS)

CHILDREN = {"both": ALL, "handshake": HANDSHAKE, "modern": ALL}
"""Versions that are run through the hub per era of its child."""
RUNS = [
    *((f"stdio-{era}", version) for era, versions in CHILDREN.items() for version in versions),
    *(("http", version) for version in ALL),
]

APART = ("server-session-terminated-returns-404", "tools-list-deterministic-order")
"""Checks that replicas may fail: others learn of the end of a session, and of a changed list, a little later."""

TASK_RUNS = [
    *(("stdio-modern", name) for name in TASK_SCENARIOS),
    # those that ask; on a handshake pipe nobody is asked for 5 s after a call was given up, and these give up many
    *(("http-handshake", name) for name in ("mrtr-input", "mrtr-composition", "dispatch-and-envelope")),
]


@pytest.fixture(scope="module")
async def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with arranged(request.param, tmp_path_factory.mktemp(request.param)) as url:
        yield url


@pytest.mark.parametrize(("url", "version"), RUNS, indirect=["url"], scope="module")
async def test_all_server_scenarios_pass(suite: Sequence[str], url: str, version: str) -> None:
    run = await run_server_scenarios(suite, url, version)
    print(version, "at", url, run)
    complaints = [each for each in run.complaints if replica_count() == 1 or not any(one in each for one in APART)]
    assert not complaints, "\n".join(complaints)
    assert len(run.verdicts) == SERVER_SCENARIOS[version]
    # a check that could not be made is no success: a capability that the hub does not pass on hides behind it
    assert [each.scenario for each in run.verdicts if each.count("SKIPPED")] == []


@pytest.mark.parametrize(("url", "name"), TASK_RUNS, indirect=["url"], scope="module")
async def test_calls_of_ordinary_tools_become_tasks(suite: Sequence[str], url: str, name: str) -> None:
    run = await run_task_scenario(suite, url, name)
    assert not run.complaints, "\n".join(run.complaints)
    (verdict,) = run.verdicts
    # the suite cannot listen to tasks yet, and says so
    assert verdict.count("SKIPPED") == (name == "status-notifications")


async def skill_checks(suite: Sequence[str], url: str) -> list[tuple[str, str]]:
    """Identifiers and statuses of all checks about skills."""
    runs = [await run_skill_scenario(suite, url, name) for name in SKILL_SCENARIOS]
    print(url, *runs)
    return [(own["id"], own["status"]) for run in runs for each in run.verdicts for own in each.checks]


async def test_skills_pass_every_check_as_they_do_without_the_hub(
    suite: Sequence[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    checks = {}
    for arrangement in ("direct", "stdio-both", "http"):
        async with arranged(arrangement, tmp_path_factory.mktemp(arrangement)) as url:
            checks[arrangement] = await skill_checks(suite, url)
    assert checks["stdio-both"] == checks["http"] == checks["direct"]
    # a server without skills would skip them all
    assert {status for _, status in checks["direct"]} == {"SUCCESS"}
    assert len(checks["direct"]) == 45


@pytest.mark.parametrize("behind", ["bare-stdio-both", "bare-http"])
async def test_a_bare_server_is_not_announced_with_more_than_it_has(
    suite: Sequence[str], tmp_path_factory: pytest.TempPathFactory, behind: str
) -> None:
    verdicts = {}
    for arrangement in ("bare-direct", behind):
        async with arranged(arrangement, tmp_path_factory.mktemp(arrangement)) as url:
            skills = await skill_checks(suite, url)
            run = await run_server_scenario(suite, url, "server-stateless", "2026-07-28")
            (stateless,) = run.verdicts
            declared = {check["id"]: check["status"] for check in stateless.checks if "discover" in check["id"]}
            verdicts[arrangement] = skills, declared
    # with everything declared two scenarios of skills fail, for lack of any, and `server-stateless` finds no fault
    assert verdicts[behind] == verdicts["bare-direct"]
    assert {status for _, status in verdicts[behind][0]} == {"SUCCESS", "SKIPPED"}
    assert verdicts[behind][1]["sep-2575-server-declares-prompts-in-discover"] == "SUCCESS"


async def called(url: str) -> None:
    """Starts a handshake session, and calls the tool."""
    async with HttpClient(url) as client:
        await client.initialize()
        answer = await client.request("tools/call", {"name": "test_simple_text", "arguments": {}})
        assert answer.last["result"]


@pytest.mark.parametrize("version", ALL)
async def test_no_scenario_of_a_bare_server_is_worse_than_without_the_hub(
    suite: Sequence[str], tmp_path_factory: pytest.TempPathFactory, version: str
) -> None:
    passed = {}
    for arrangement in ("bare-direct", "bare-stdio-both", "bare-http"):
        async with arranged(arrangement, tmp_path_factory.mktemp(arrangement)) as url:
            if arrangement != "bare-direct":  # a process of this era may need longer than a scenario has
                await called(url)
            run = await run_server_scenarios(suite, url, version)
        print(version, arrangement, run)
        assert len(run.verdicts) == SERVER_SCENARIOS[version]
        passed[arrangement] = {each.scenario for each in run.verdicts if each.is_passed}
    assert passed["bare-direct"]
    assert passed["bare-direct"] - passed["bare-stdio-both"] == set()
    assert passed["bare-direct"] - passed["bare-http"] == set()


async def test_skills_of_fastmcp_pass_what_they_do_without_the_hub(suite: Sequence[str], tmp_path: Path) -> None:
    try:
        async with fastmcp_server(tmp_path) as server:
            direct = dict(await skill_checks(suite, server))
            async with hub_before({"url": server}, tmp_path) as hub:
                found = dict(await skill_checks(suite, hub))
    except NotInstalled as reason:
        pytest.skip(str(reason))
    # it does not read directories, which the hub then does by its manifests
    directories = {name for name, status in direct.items() if status == "SKIPPED"}
    assert directories and all("directory" in name for name in directories)
    assert found == {**direct, **dict.fromkeys(directories, "SUCCESS")}
    assert "FAILURE" not in direct.values()
