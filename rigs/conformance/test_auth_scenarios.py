"""The suite's client scenarios of authorization: its authorization servers and the server that they guard.

How many there are: 3 that apply to 2025-06-18, 14 to 2025-11-25, 25 to 2026-07-28 (the suite's `auth` and, of its
`draft` one, those about authorization), 2 for servers of 2025-03-26 (`backcompat`), and 6 of extensions, of which the
hub plays the 2 of client credentials. It has no enterprise-managed authorization, DPoP (2) and workload identity.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mcp_hub.app import logins
from rigs.conformance.auth_client import forwarded
from rigs.conformance.suite import Run, run_client_scenario, run_client_suite

pytestmark = pytest.mark.anyio

AUTH_METHODS = {f"auth/token-endpoint-auth-{method}" for method in ("basic", "post", "none")}
AUTH = AUTH_METHODS | {
    *(f"auth/metadata-{which}" for which in ("default", "var1", "var2", "var3")),
    *(
        "auth/basic-cimd",
        "auth/pre-registration",
        "auth/scope-from-www-authenticate",
        "auth/scope-from-scopes-supported",
    ),
    *("auth/scope-omitted-when-undefined", "auth/scope-step-up", "auth/scope-retry-limit"),
}
MODERN = {
    *(f"auth/iss-{which}" for which in ("supported", "not-advertised", "supported-missing", "wrong-issuer")),
    *("auth/iss-unexpected", "auth/iss-normalized", "auth/metadata-issuer-mismatch", "auth/resource-mismatch"),
    *("auth/offline-access-scope", "auth/offline-access-not-supported", "auth/authorization-server-migration"),
}
OLD = {"auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback"}
SUITES = {
    ("auth", "2025-06-18"): AUTH_METHODS,
    ("auth", "2025-11-25"): AUTH,
    ("auth", "2026-07-28"): AUTH,
    ("draft", "2026-07-28"): MODERN,
    ("backcompat", "2025-03-26"): OLD,
}
EXTENSIONS = ("auth/client-credentials-basic", "auth/client-credentials-jwt")


@pytest.fixture(autouse=True)
def hubs_look_often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub notices a login at once, not within a second."""
    monkeypatch.setattr(logins, "_LOOK", 0.02)
    yield


def command(socket: str) -> str:
    return f"{sys.executable} -I -S {Path(__file__).with_name('forward.py')} {socket}"


def passed(run: Run) -> set[str]:
    """The scenarios of authorization, all of whose checks were good."""
    about = [each for each in run.verdicts if each.scenario.startswith("auth/")]
    complaints = [line for each in about for line in each.complaints]
    assert not complaints, "\n".join([*complaints, run.noise[-8000:]])
    return {each.scenario for each in about}


@pytest.mark.parametrize(("name", "version"), SUITES)
async def test_scenarios_of_authorization_pass(suite: Sequence[str], name: str, version: str, tmp_path: Path) -> None:
    async with forwarded(tmp_path) as socket:
        run = await run_client_suite(suite, command(socket), name, version)
    print(version, run, run.noise)
    assert passed(run) == SUITES[name, version]


@pytest.mark.parametrize("scenario", EXTENSIONS)
async def test_a_hub_that_logs_in_by_itself_passes(suite: Sequence[str], scenario: str, tmp_path: Path) -> None:
    async with forwarded(tmp_path) as socket:
        run = await run_client_scenario(suite, command(socket), scenario, None)
    print(run, run.noise)
    assert passed(run) == {scenario}
    assert not run.complaints
