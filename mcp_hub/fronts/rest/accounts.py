"""The caller's own accounts at servers over REST: a link to log in, and the code that ends it."""

from collections.abc import Callable
from typing import Final

from msgspec import UNSET
from starlette.responses import Response

from mcp_hub.fronts.http.login_pages import LoginCounter
from mcp_hub.fronts.rest.exchange import RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.protocol.rest.servers import AccountAnswer, AccountCode

_LARGEST: Final = 4096
"""Bytes of a body."""


class RestAccounts:
    """Serves `/v1/accounts/…`. `fields` gives the values of an account at a server; None: it has no own accounts."""

    def __init__(self, desk: LoginCounter | None, fields: Callable[[str], tuple[str, ...] | None]) -> None:
        self._desk = desk
        self._fields = fields

    async def link(self, request: RestRequest) -> Response:
        desk, server, fields = self._known(request)
        _, url = await desk.offer(server, request.caller.principal, fields)
        return answer(AccountAnswer(server, request.caller.principal, url=url))

    async def confirm(self, request: RestRequest) -> Response:
        desk, server, _ = self._known(request)
        body = await request.shaped(AccountCode, _LARGEST)
        login = await desk.confirm(server, request.caller.principal, body.code)
        return answer(AccountAnswer(server, login.principal, account=login.label or UNSET))

    def _known(self, request: RestRequest) -> tuple[LoginCounter, str, tuple[str, ...]]:
        """Raises `Problem` 404."""
        server = request.path["server"]
        fields = self._fields(server)
        if fields is None:
            raise unknown_server(server)
        if self._desk is None:
            raise Problem(404, "login_unavailable", "The hub has no accounts of principals: see hub.accounts.key.")
        return self._desk, server, fields
