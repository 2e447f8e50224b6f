"""The caller's own accounts at servers over REST: list, removal, values, login by link and code."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import UNSET
from starlette.responses import Response

from mcp_hub.fronts.rest.exchange import Handlers, RestRequest, answer, check_operator
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.protocol.rest.servers import (
    AccountAnswer,
    AccountCode,
    AccountInfo,
    AccountList,
    AccountValue,
)

if TYPE_CHECKING:
    from mcp_hub.fronts.http.login_pages import LoginCounter

_LARGEST: Final = 4096
"""Bytes of a body."""
_NO_ACCOUNTS: Final = (
    "The hub was started without accounts of principals. A hub.accounts.key that was added since holds from its next "
    "start on: restart it."
)
_LARGEST_VALUE: Final = 64 << 10
"""Bytes of a body with a value."""


class _AccountBook(Protocol):
    """The stored accounts. Methods raise `StoreUnavailable`."""

    async def listed(self, principal: str | None) -> list[AccountInfo]:
        """A principal's accounts; None: of all."""

    async def remove(self, server: str, principal: str) -> AccountAnswer:
        """Ends all that uses the account, removes it, and revokes it at its server."""

    async def put_value(self, server: str, principal: str, name: str, value: str) -> None:
        """Stores a value. Raises `Rejected` for one that cannot be sent."""


class _Accounts:
    """Serves `/v1/accounts/…`. `fields` gives the values of an account at a server; None: it has no own accounts."""

    def __init__(
        self, desk: "LoginCounter | None", fields: Callable[[str], tuple[str, ...] | None],
        book: _AccountBook | None = None,
    ) -> None:  # fmt: skip
        self._desk = desk
        self._fields = fields
        self._book = book

    async def list_accounts(self, request: RestRequest) -> Response:
        """The caller's; for operators everybody's, or a principal's."""
        caller, chosen = request.caller, request.query_params.get("principal")
        if chosen is None and not caller.operates:
            chosen = caller.principal
        self._check(request, chosen)
        return answer(AccountList([] if self._book is None else await self._book.listed(chosen)))

    async def remove(self, request: RestRequest) -> Response:
        """Also at a server that is no longer configured."""
        principal = request.query_params.get("principal", request.caller.principal)
        self._check(request, principal)
        return answer(await self._kept().remove(request.path["server"], principal))

    async def put_value(self, request: RestRequest) -> Response:
        """Sets a value that the server's entry names."""
        principal = request.query_params.get("principal", request.caller.principal)
        self._check(request, principal)
        server, name = request.path["server"], request.path["name"]
        book, fields = self._kept(), self._fields(server)
        if fields is None:
            raise unknown_server(server)
        if name not in fields:
            raise Problem(
                404, "unknown_entry", f"{server} takes these values of accounts: {', '.join(fields) or 'none'}"
            )
        value = (await request.shaped(AccountValue, _LARGEST_VALUE)).value
        if not value or not value.isprintable():
            raise Problem(400, "invalid_body", "the value is empty, or has characters that cannot be printed")
        await book.put_value(server, principal, name, value)
        return answer(AccountAnswer(server, principal))

    def _check(self, request: RestRequest, principal: str | None) -> None:
        """Raises `Problem` 403 for the accounts of others."""
        if principal != request.caller.principal:
            check_operator(request.caller, "These are the accounts of others.")

    def _kept(self) -> _AccountBook:
        """Raises `Problem` 404."""
        if self._book is None:
            raise Problem(404, "login_unavailable", _NO_ACCOUNTS)
        return self._book

    async def link(self, request: RestRequest) -> Response:
        desk, server, fields = self._known(request)
        _, url = await desk.offer(server, request.caller.principal, fields)
        return answer(AccountAnswer(server, request.caller.principal, url=url))

    async def confirm(self, request: RestRequest) -> Response:
        desk, server, _ = self._known(request)
        body = await request.shaped(AccountCode, _LARGEST)
        login = await desk.confirm(server, request.caller.principal, body.code)
        return answer(AccountAnswer(server, login.principal, account=login.label or UNSET))

    def _known(self, request: RestRequest) -> "tuple[LoginCounter, str, tuple[str, ...]]":
        """Raises `Problem` 404."""
        server = request.path["server"]
        if self._desk is None:
            raise Problem(404, "login_unavailable", _NO_ACCOUNTS)
        fields = self._fields(server)
        if fields is None:
            raise unknown_server(server)
        return self._desk, server, fields


def account_handlers(
    desk: "LoginCounter | None", fields: Callable[[str], tuple[str, ...] | None], book: _AccountBook | None = None
) -> Handlers:
    """`/v1/accounts`."""
    served = _Accounts(desk, fields, book)
    return {
        "linkAccount": served.link,
        "confirmAccount": served.confirm,
        "listAccounts": served.list_accounts,
        "removeAccount": served.remove,
        "putAccountValue": served.put_value,
    }
