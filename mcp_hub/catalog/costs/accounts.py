"""Accounts of what tools cost; each text is measured once."""

from collections.abc import Mapping
from functools import partial

import anyio
import anyio.to_thread

from mcp_hub.call import Upstream
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.costs.token_costs import HEAVIEST, CostQuery, Measures, account
from mcp_hub.catalog.discovery.servers import instructions
from mcp_hub.protocol.rest.tokens import TokenAccount
from mcp_hub.types import ClientKind


class TokenAccounts:
    """The token accounts of one catalog, computed one at a time."""

    def __init__(self, catalog: Catalog, upstreams: Mapping[str, Upstream]) -> None:
        self._catalog = catalog
        self._upstreams = upstreams
        self._measures = Measures()
        self._turn = anyio.Lock()

    async def account(
        self, profile: str | None, client: str, kind: ClientKind, server: str | None, heaviest: int | None
    ) -> TokenAccount:
        """Counts in a worker thread."""
        catalog = self._catalog
        number, text = HEAVIEST if heaviest is None else heaviest, instructions(catalog, self._upstreams, profile)
        query = CostQuery(
            client=client,
            profile=profile,
            starting=catalog.starting(profile),
            server=server,
            heaviest=number,
            instructions=text or "",
        )
        async with self._turn:
            count = partial(account, catalog.view(profile), catalog.rules(profile), kind, query, self._measures)
            return await anyio.to_thread.run_sync(count, abandon_on_cancel=True)
