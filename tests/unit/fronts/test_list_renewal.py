"""A client that is listed something has its servers look whether their lists are old, and does not wait for it."""

import json

import pytest

from mcp_hub.types import Kind
from tests.unit.fronts.small_hub import Hub

pytestmark = pytest.mark.anyio


async def test_a_list_has_its_servers_look_at_its_age_once_a_first_time() -> None:
    hub = Hub()
    hub.source.offers(Kind.TOOL, "add")
    client = hub.client()
    hub.port.list_page(client, Kind.PROMPT, None)
    hub.port.list_page(client, Kind.TOOL, None)
    hub.port.list_page(client, Kind.TOOL, None)
    hub.port.list_page(hub.client(), Kind.TOOL, None)
    assert hub.source.shown == [(Kind.PROMPT, True), (Kind.TOOL, True), (Kind.TOOL, False), (Kind.TOOL, True)]


async def test_further_pages_and_skills_are_not_looked_at() -> None:
    hub = Hub()
    hub.source.offers(Kind.TOOL, *(f"t{number}" for number in range(15)))
    client = hub.client()
    page = json.loads(hub.port.list_page(client, Kind.TOOL, None))
    hub.port.list_page(client, Kind.TOOL, page["nextCursor"])
    hub.port.list_page(client, Kind.SKILL, None)
    assert hub.source.shown == [(Kind.TOOL, True)]
