"""The token costs of tools, over REST."""

from typing import Final

from starlette.responses import Response

from mcp_hub.errors import ConfigError
from mcp_hub.fronts.rest.exchange import RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.hub import HubPort

ANY_CLIENT: Final = "unknown"
"""The kind of every client that no other kind matches."""
_LONGEST: Final = 256
"""Characters of a kind of client."""


class RestTokens:
    """Serves `/v1/tokens`."""

    def __init__(self, hub: HubPort) -> None:
        self._hub = hub

    async def count_tokens(self, request: RestRequest) -> Response:
        """The account of the caller's profile, for the kind of client that the query names. Raises `Problem`."""
        client = request.query_params.get("client", ANY_CLIENT)
        if len(client) > _LONGEST:
            raise Problem(400, "unknown_client", f"unknown client: a name of {len(client)} characters")
        await self._hub.catalog.settled()
        try:
            found = await self._hub.token_account(request.caller, client)
        except ConfigError as problem:
            raise Problem(400, "unknown_client", str(problem)) from None
        return answer(found)
