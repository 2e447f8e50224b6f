"""A catalog of two servers that list what they are told to, and the approvals of their tools."""

import json
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from mcp_hub.call import Call
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.pins import Policy, approved, encoded, findings_of, read, unconfirmed_of
from mcp_hub.catalog.routes import route
from mcp_hub.catalog.trust.approvals import Approvals
from mcp_hub.clock import SystemClock
from mcp_hub.ids import record_key
from mcp_hub.notices import Notices
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import Era, Kind
from tests.unit.catalog.offers import Listing, offer, tool
from tests.unit.upstreams.function_calls import request
from tests.upstreams.child import WAIT

CONFIG = "/etc/servers.yaml"
Tools = dict[str, str]
"""Descriptions by name."""


class Described(Listing):
    """A server that lists tools with these descriptions."""

    def describes(self, tools: Tools) -> None:
        self.lists(offer(self.name, *(tool(name, description=said) for name, said in tools.items()), era=Era.MODERN))


class Hub:
    """A catalog of servers `a` and `b`, with their approvals."""

    def __init__(
        self,
        folder: Path,
        policy: Policy = "block",
        rules: ViewRules | None = None,
        relist: Callable[[str], None] = lambda server: None,
        confirms: Collection[str] = (),
        **policies: Policy,
    ) -> None:
        self.changes, self.store = Notices(), KeyedFiles(folder)
        self.a, self.b = Described("a", self.changes), Described("b", self.changes)
        chosen: dict[str, Policy] = {"a": policy, "b": policy, **policies}
        self.approvals = Approvals(self.store, CONFIG, chosen, self.changes, lambda: 1000.0, relist, confirms)
        rules = rules or ViewRules({"a": ServerRules("a"), "b": ServerRules("b")})
        self.catalog = Catalog(
            {"a": self.a, "b": self.b}, {None: rules}, self.changes, SystemClock(), 0, judged=self.approvals.judged
        )

    def names(self) -> dict[str, str]:
        """What is listed: descriptions by exported name."""
        entries = self.catalog.view(None).entries(Kind.TOOL)
        return {entry.exported: json.loads(entry.raw)["description"] for entry in entries}

    def asked(self, tools: Tools) -> dict[str, str]:
        """The same once server `a` lists these tools."""
        self.a.describes(tools)
        return self.names()

    def call(self, name: str) -> str:
        """The server's own name of the tool that a call would reach."""
        params = {"name": msgspec.Raw(json.dumps(name).encode())}
        to = route(self.catalog.view(None), Era.MODERN, "tools/call", params)
        return str(msgspec.json.decode(to.params["name"]))

    def found(self) -> dict[str, str]:
        return {own.tool: own.kind for own in self.approvals.findings()}

    def on_disk(self, policy: Policy = "block", server: str = "a") -> dict[str, str]:
        record = read(self.store.read(record_key(CONFIG, server)))
        return {name: own.kind for name, own in findings_of(server, record, record.tools, policy).items()}


def call(tool: str, asked: str, method: str = "tools/call", server: str = "a") -> Call:
    """A call of a tool that its caller knows by another name."""
    raw = msgspec.Raw(json.dumps(asked).encode())
    return msgspec.structs.replace(request(tool, method=method), upstream=server, exported_name=raw)


def approve(folder: Path, *tools: str) -> None:
    """As another process does it."""

    def change(text: bytes | None) -> bytes:
        record = read(text)
        waiting = unconfirmed_of("a", record, record.tools) | findings_of("a", record, record.tools, "block")
        digests = {name: own.digest for name, own in waiting.items()}
        record, missed = approved(record, {name: digests[name] for name in tools}, 2000.0)
        assert missed == []
        return encoded(record)

    KeyedFiles(folder).update(record_key(CONFIG, "a"), change)


@asynccontextmanager
async def running(hub: Hub) -> AsyncIterator[Hub]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hub.approvals.run)
        yield hub
        tasks.cancel_scope.cancel()
        hub.approvals.close()


async def until(hub: Hub, condition: Callable[[], bool]) -> None:
    """Waits for what files tell, and for what the catalog tells once something has changed."""
    with anyio.fail_after(WAIT):
        while not condition():  # noqa: ASYNC110 - files set no event of ours
            await anyio.sleep(0.01)
