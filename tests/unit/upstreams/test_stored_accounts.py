"""Accounts of principals: encrypted rows that fit their place only, generations, waiting, rotation of keys."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from cryptography.fernet import Fernet

from mcp_hub.errors import StoreError
from mcp_hub.upstreams.accounts.accounts import Accounts
from mcp_hub.upstreams.accounts.rows import Account, RowFiles, Seal, row_name
from mcp_hub.upstreams.auth.grants import Grant, LoginFailed
from tests.unit.calls.virtual_time import sleep, virtual

KEY, OLD_KEY = Fernet.generate_key().decode(), Fernet.generate_key().decode()

pytestmark = pytest.mark.anyio


def a_grant(token: str = "token-of-anna", **fields: str) -> Grant:
    return Grant(access_token=token, token_endpoint="https://auth.example/token", client_id="hub", **fields)  # type: ignore[arg-type]


def accounts_in(folder: Path, *keys: str) -> Accounts:
    return Accounts(RowFiles(folder), Seal(keys or (KEY,)))


def rows_in(folder: Path) -> list[Path]:
    return list(folder.glob("*.json"))


async def keep(accounts: Accounts, server: str, principal: str, token: str, generation: int | None = None) -> bool:
    now = await accounts.generation(server, principal) if generation is None else generation
    return await accounts.keep(server, principal, a_grant(token), target="t", generation=now)


async def test_an_account_is_kept_encrypted_in_a_private_file_of_a_hashed_name(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    assert await accounts.read("git", "anna") is None
    assert await keep(accounts, "git", "anna", "token-of-anna")
    [file] = rows_in(tmp_path)
    assert file.stem == row_name("git", "anna") and file.stat().st_mode & 0o777 == 0o600
    content = file.read_bytes()
    assert b"anna" not in content and b"git" not in content and b"token" not in content
    again = accounts_in(tmp_path)
    account = await again.read("git", "anna")
    assert account is not None and account.grant == a_grant("token-of-anna") and "token" not in repr(account)
    assert await again.read("git", "bert") is None and await again.read("hub", "anna") is None


async def test_rows_that_were_swapped_in_the_store_are_refused(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    await keep(accounts, "git", "anna", "token-of-anna")
    await keep(accounts, "git", "bert", "token-of-bert")
    anna, bert = (tmp_path / f"{row_name('git', name)}.json" for name in ("anna", "bert"))
    anna.write_bytes(bert.read_bytes())
    with pytest.raises(LoginFailed, match="another's"):
        await accounts.read("git", "anna")
    with pytest.raises(LoginFailed):
        await accounts.grants("git", "anna").read("t")
    assert [account.principal for account, _ in await accounts.listed()] == ["bert"]


async def test_a_row_of_another_key_is_no_account_and_can_be_replaced(tmp_path: Path) -> None:
    await keep(accounts_in(tmp_path, OLD_KEY), "git", "anna", "token-of-anna")
    accounts = accounts_in(tmp_path, KEY)
    with pytest.raises(LoginFailed, match=r"hub\.accounts\.key"):
        await accounts.read("git", "anna")
    assert await keep(accounts, "git", "anna", "another")
    account = await accounts.read("git", "anna")
    assert account is not None and account.grant == a_grant("another")


async def test_keys_are_rotated_by_reading_the_old_one_too(tmp_path: Path) -> None:
    await keep(accounts_in(tmp_path, OLD_KEY), "git", "anna", "token-of-anna")
    both = accounts_in(tmp_path, KEY, OLD_KEY)
    assert (await both.read("git", "anna")) is not None
    assert await both.sweep(1000.0) == 0
    account = await accounts_in(tmp_path, KEY).read("git", "anna")
    assert account is not None and account.grant == a_grant("token-of-anna")


async def test_a_login_that_finishes_after_its_account_was_removed_is_thrown_away(tmp_path: Path) -> None:
    accounts, ended = accounts_in(tmp_path), list[tuple[str, str]]()
    accounts.ended.append(lambda server, principal: ended.append((server, principal)))
    began = await accounts.generation("git", "anna")
    await accounts.remove("git", "anna")
    assert ended[0] == ("git", "anna")
    assert not await keep(accounts, "git", "anna", "late", began)
    assert await accounts.read("git", "anna") is None
    assert await keep(accounts, "git", "anna", "in time")
    revoked = list[str]()

    async def revoke(account: Account) -> str:
        assert account.grant is not None
        revoked.append(account.grant.access_token)
        return "the server is away"

    accounts = Accounts(RowFiles(tmp_path), Seal([KEY]), revoke=revoke)
    assert await accounts.remove("git", "anna") == (True, "the server is away") and revoked == ["in time"]
    assert await accounts.remove("git", "anna") == (False, "")
    assert await accounts.listed() == []


async def test_a_renewal_does_not_bring_a_removed_account_back(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    await keep(accounts, "git", "anna", "first")
    grants = accounts.grants("git", "anna")
    assert await grants.read("t") == a_grant("first") and await grants.read("of another url") is None
    async with grants.locked("t", 1), grants.renewing("t") as commit:
        await commit(a_grant("second"))
    assert await grants.read("t") == a_grant("second")
    await accounts.remove("git", "anna")
    with pytest.raises(LoginFailed, match="removed"):
        async with grants.locked("t", 1), grants.renewing("t") as commit:
            await commit(a_grant("third"))
    assert await grants.read("t") is None


REMOVED: dict[str, Callable[[Accounts], Awaitable[object]]] = {
    "removed": lambda there: there.remove("git", "anna"),
    "replaced": lambda there: keep(there, "git", "anna", "another"),
    "a new value": lambda there: there.put_value("git", "anna", "TOKEN", "one"),
}


@pytest.mark.parametrize("change", REMOVED)
@pytest.mark.parametrize("use", ["open", "remembered"])
@pytest.mark.parametrize("others", [0, 200])
def test_what_another_hub_does_to_an_account_is_noticed_within_a_second(change: str, use: str, others: int) -> None:
    @virtual
    async def test() -> None:
        with TemporaryDirectory() as folder:
            await noticed(Path(folder), change, use, others)

    test()


async def noticed(folder: Path, change: str, use: str, others: int) -> None:
    """Fails if what uses the account here has not heard of a change by another hub in a second of the loop's time."""
    here, there = accounts_in(folder), accounts_in(folder)
    ended: list[tuple[str, float]] = []
    here.ended.append(lambda server, principal: ended.append((principal, anyio.current_time())))
    await keep(there, "git", "anna", "first")
    for number in range(others):
        await here.followed("git", f"other {number}")
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(here.follow, 1000.0)
        woken = anyio.Event()
        if use == "remembered":
            assert await here.followed("git", "anna") is not None
        else:
            watched = await stack.enter_async_context(here.watched("git", "anna"))
            woken = watched.changed
        await sleep(7.77)
        began = anyio.current_time()
        await REMOVED[change](there)
        with anyio.move_on_after(1.0):
            while not ended:
                await sleep(0.01)
        assert [(principal, at - began < 1.0) for principal, at in ended] == [("anna", True)], "once, nobody else"
        assert woken.is_set() is (use != "remembered")
        await sleep(7.77)
        assert len(ended) == 1


async def test_accounts_that_are_too_many_to_follow_count_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.accounts.accounts._MOST_WATCHED", 3)
    accounts, ended = accounts_in(tmp_path), list[str]()
    accounts.ended.append(lambda server, principal: ended.append(principal))
    async with accounts.watched("git", "in use"):
        for number in range(4):
            await accounts.followed("git", f"p{number}")
        await accounts.followed("git", "p2")
        await accounts.followed("git", "p4")
    assert ended == ["p0", "p1", "p3"]


async def test_accounts_that_are_not_used_go_after_a_time_and_what_is_removed_leaves_no_row(tmp_path: Path) -> None:
    now = [1_900_000_000.0]
    accounts = Accounts(RowFiles(tmp_path), Seal([KEY]), lambda: now[0])
    await keep(accounts, "git", "anna", "first")
    assert await accounts.sweep(1e9) == 0
    assert await accounts.sweep(60.0) == 1 and await accounts.read("git", "anna") is None
    assert len(rows_in(tmp_path)) == 1  # which throws late logins away
    now[0] += 2 * 86400
    await accounts.sweep(60.0)
    assert rows_in(tmp_path) == []


async def test_values_are_added_one_by_one(tmp_path: Path) -> None:
    accounts = accounts_in(tmp_path)
    await accounts.put_value("git", "anna", "TOKEN", "one")
    await accounts.put_value("git", "anna", "OTHER", "two")
    account = await accounts.read("git", "anna")
    assert account is not None and account.values == {"TOKEN": "one", "OTHER": "two"} and "one" not in repr(account)


class _Failing(RowFiles):
    def __init__(self, folder: Path, failures: int) -> None:
        super().__init__(folder)
        self.failures = failures

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
        async with super().writing(name) as write:

            async def commit(row: bytes) -> None:
                self.failures -= 1
                if self.failures >= 0:
                    raise StoreError("no answer")
                await write(row)

            yield commit


async def test_a_renewed_login_is_stored_again_and_again_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.accounts.rows._TRIES", (0.0, 0.0))
    await keep(accounts_in(tmp_path), "git", "anna", "first")
    accounts = Accounts(_Failing(tmp_path, 2), Seal([KEY]))
    grants = accounts.grants("git", "anna")
    async with grants.locked("t", 1), grants.renewing("t") as commit:
        await commit(a_grant("second"))
    assert await grants.read("t") == a_grant("second")


async def test_a_damaged_row_says_so_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / f"{row_name('git', 'anna')}.json"
    path.write_bytes(json.dumps({"server": "git", "principal": "anna"}).encode())
    with pytest.raises(LoginFailed, match="damaged") as failure:
        await accounts_in(tmp_path).read("git", "anna")
    assert "anna" not in str(failure.value)


@virtual
async def test_an_account_that_a_hub_replaces_ends_what_uses_it_there_at_once() -> None:
    with TemporaryDirectory() as folder:
        accounts, ended = accounts_in(Path(folder)), list[str]()
        accounts.ended.append(lambda server, principal: ended.append(principal))
        await keep(accounts, "git", "anna", "first")
        async with accounts.watched("git", "anna"), anyio.create_task_group() as tasks:
            tasks.start_soon(accounts.follow, 1000.0)
            await sleep(5.0)
            assert ended == [], "what is known ends nothing"
            await keep(accounts, "git", "anna", "second")
            assert ended == ["anna"], "kept results of the old one are dropped"
            await sleep(5.0)
            assert ended == ["anna"]
            tasks.cancel_scope.cancel()


async def test_an_account_whose_connection_stays_open_is_in_use(tmp_path: Path) -> None:
    now = [1_900_000_000.0]
    accounts = Accounts(RowFiles(tmp_path), Seal([KEY]), lambda: now[0])
    await keep(accounts, "git", "anna", "first")
    await keep(accounts, "git", "bert", "first")
    async with accounts.watched("git", "anna"), accounts.watched("git", "carl"):
        assert await accounts.sweep(60.0) == 1
    assert await accounts.read("git", "anna") is not None and await accounts.read("git", "bert") is None
