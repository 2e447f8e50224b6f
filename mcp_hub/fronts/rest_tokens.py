"""What the tools cost a model, over REST and for `mcp-hub tokens`: the same account for both. Source: context.md §6."""

from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.catalog.accounting import HEAVIEST, Asked, Measures, TokenAccount, account
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.rest_http import RestRequest, respond
from mcp_hub.fronts.rest_problem import Problem
from mcp_hub.hub import Facade
from mcp_hub.protocol import eras
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era

__all__ = ["ANY_CLIENT", "RestTokens", "accounted"]

ANY_CLIENT: Final = "unknown"
"""The kind of every client that no other kind matches."""
_LONGEST: Final = 256
"""Characters of a kind of client."""


async def accounted(
    hub: Facade,
    caller: Caller,
    client: str,
    *,
    server: str | None = None,
    heaviest: int = HEAVIEST,
    measures: Measures | None = None,
) -> TokenAccount:
    """The account of the caller's tools, as clients of this kind are listed them now.

    Counted in a worker thread, which a cancelled caller leaves to itself. Raises `ConfigError` for a kind of client
    that is not known.
    """
    catalog, profile = hub.catalog, caller.profile
    session = Session("", replace(caller, client=client), Era.HANDSHAKE, eras.LATEST_HANDSHAKE)
    asked = Asked(client, profile, catalog.starting(profile), server, heaviest)
    count = partial(account, catalog.view(profile), catalog.rules(profile), hub.audience(session), asked, measures)
    return await anyio.to_thread.run_sync(count, abandon_on_cancel=True)


class RestTokens:
    """Serves `/v1/tokens`: one account at a time, others wait for their turn."""

    def __init__(self, hub: Facade) -> None:
        self._hub = hub
        self._measures = Measures()
        self._turn = anyio.Lock()

    async def count_tokens(self, request: RestRequest) -> None:
        """The account of the caller's profile, for the kind of client that the query names. Raises `Problem`."""
        client = request.query.get("client", ANY_CLIENT)
        if len(client) > _LONGEST:
            raise Problem(400, "unknown_client", f"unknown client: a name of {len(client)} characters")
        await self._hub.catalog.settled()
        async with self._turn:
            try:
                found = await accounted(self._hub, request.caller, client, measures=self._measures)
            except ConfigError as problem:
                raise Problem(400, "unknown_client", str(problem)) from None
        await respond(request.send, 200, msgspec.json.encode(found))
