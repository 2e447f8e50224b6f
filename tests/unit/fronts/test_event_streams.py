"""One `events/stream` whose reader fails."""

import json
from typing import Any

import pytest

from mcp_hub.calls.feeds.reading import FeedReader, Topic
from mcp_hub.errors import RpcError, StoreError
from mcp_hub.fronts.mcp.events import EventStream
from mcp_hub.protocol.shape.occurrences import EventParams, not_found
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.types import Era
from tests.unit.fronts.small_hub import Hub

pytestmark = pytest.mark.anyio


class Reader(FeedReader):
    """A reader whose every read fails."""

    def __init__(self, problem: Exception) -> None:
        super().__init__(Topic("git", "build", b"{}"), self._nothing, self._nothing)
        self._problem = problem

    async def _nothing(self, *_: object) -> None:
        return None

    async def read(self, limit: int) -> Any:
        raise self._problem


class Types:
    """An `EventPort` that knows each name."""

    def check(self, session: Session, name: str, reader: FeedReader) -> None:
        """Raises nothing."""

    def public(self, session: Session, error: RpcError) -> RpcError:
        return error


@pytest.mark.parametrize(
    ("problem", "kind"), [(StoreError("the store is away"), "error"), (not_found("event", "gone"), "terminated")]
)
async def test_stream_is_terminated_only_if_its_subscription_is_over(
    problem: Exception, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = Hub().port
    monkeypatch.setattr(port, "events", Types)
    session = Session("s", LOCAL, Era.MODERN, "")
    stream = EventStream(hub=port, session=session, params=EventParams("x"), reader=Reader(problem), id_=b"1")
    (frame,) = await stream.next()
    assert json.loads(frame)["method"] == f"notifications/events/{kind}"
    stream.sent()
    with stream.scope:
        await stream.next()
    assert stream.scope.cancelled_caught
