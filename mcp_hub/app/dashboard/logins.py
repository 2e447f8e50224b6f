"""Logins to remote servers from the dashboard."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from mcp_hub.app.limits import Current
from mcp_hub.app.logins import Logins, login_of, outcome, why_no_login
from mcp_hub.fronts.dashboard.ports import Login
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.masking import hide
from mcp_hub.protocol.rest.overview import LoginEnded, LoginNews, LoginPage
from mcp_hub.upstreams.auth.grants import ClientRegistration, LoginFailed
from mcp_hub.upstreams.auth.login import log_in

_PATIENCE: Final = 300.0
"""Seconds for a person to log in."""


class BrowserLogins(msgspec.Struct, frozen=True):
    """Logins by a browser on this machine; `logins` informs running servers."""

    current: Current
    logins: Logins

    def is_asked_for(self, server: str) -> bool:
        """Whether it is a remote server that takes a login. Blocks."""
        settings = self.current.settings.servers.get(server)
        return settings is not None and self.logins.is_asked_for(server, settings)

    def login(self, server: str) -> Login:
        """A login to run. Raises `Problem` 404 for an unknown server, 409 without a login."""
        settings = self.current.settings.servers.get(server)
        if settings is None:
            raise unknown_server(server, self.current.settings.servers)
        if (login := login_of(settings)) is None:
            raise Problem(409, "no_login", f'Server "{server}" {why_no_login(settings)}.')
        return partial(self._run, server, *login)

    async def _run(
        self, server: str, url: str, client: ClientRegistration, say: Callable[[LoginNews], Awaitable[None]]
    ) -> LoginEnded:
        async def show(page: str, issuer: str) -> None:
            await say(LoginPage(page, issuer))

        try:
            grant = await log_in(url, client, self.logins.store, show, _PATIENCE)
        except LoginFailed as failed:
            return LoginEnded(hide(f"Cannot log in to {server}: {failed}"), "login_failed")
        return LoginEnded(outcome(server, grant, client))
