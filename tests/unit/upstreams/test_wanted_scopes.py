"""Rights that a server has missed: all of them are kept for the next login, within bounds."""

from pathlib import Path

import pytest

from tests.unit.upstreams.authorization import Authorization
from tests.unit.upstreams.test_access import held, stored

pytestmark = pytest.mark.anyio


def lacking(scope: str | None) -> str:
    named = f', scope="{scope}"' if scope is not None else ""
    return f'Bearer error="insufficient_scope"{named}'


async def test_scopes_that_calls_have_missed_one_after_the_other_are_all_kept_in_their_order(tmp_path: Path) -> None:
    async with held(Authorization(), tmp_path, scope="read", asked="read") as (_, access):
        for scope in ("write", "admin write", None, "", "  ", "audit"):
            assert await access.denied(403, lacking(scope)) is not None
        assert stored(access, tmp_path).wanted == "write admin audit"


async def test_of_too_many_scopes_the_newest_are_kept(tmp_path: Path) -> None:
    async with held(Authorization(), tmp_path) as (_, access):
        for number in range(35):
            await access.denied(403, lacking(f"also r{number} s{number}"))
        wanted = str(stored(access, tmp_path).wanted).split()
        assert len(wanted) == 64 and wanted[-1] == "s34" and len(set(wanted)) == 64


async def test_scopes_that_are_too_long_are_not_kept(tmp_path: Path) -> None:
    async with held(Authorization(), tmp_path) as (_, access):
        await access.denied(403, lacking("x" * 5000 + " write"))
        assert stored(access, tmp_path).wanted == "write"
        for letter in "abc":
            await access.denied(403, lacking(letter * 2000))
        assert str(stored(access, tmp_path).wanted) == f"{'b' * 2000} {'c' * 2000}"
