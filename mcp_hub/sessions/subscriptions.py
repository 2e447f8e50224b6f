"""Subscribed resources, each with one reference at its upstream."""

from collections.abc import Mapping
from typing import Final

from mcp_hub.call import Call, Upstream
from mcp_hub.errors import Busy, RpcError
from mcp_hub.notices import Notices, Origin
from mcp_hub.sessions.session import Session
from mcp_hub.types import CallId

MOST_SUBSCRIPTIONS: Final = 1000
"""Limit of one session."""

_NO_ID: Final = CallId("")


def call_of(session: Session) -> Call:
    """A call that is never sent, which identifies the caller to upstreams."""
    return Call(
        id=_NO_ID,
        upstream="",
        method="",
        params={},
        meta={},
        session=session.id,
        principal=session.caller.principal,
        era=session.era,
        version=session.version,
        capabilities=session.capabilities,
        is_program=session.offer.kind is not None,
        directory=session.caller.directory,
    )


class SessionSubscriptions:
    """Pairs subscriptions of sessions with references at upstream connections."""

    def __init__(self, upstreams: Mapping[str, Upstream], changes: Notices) -> None:
        self._upstreams = upstreams
        self._changes = changes

    async def add(self, session: Session, origin: Origin, uri: str) -> None:
        """Subscribes at the upstream; the client knows the resource as `uri`.

        Raises `Busy` over the limit, and errors of `Upstream.subscribe`; then nothing is subscribed.
        """
        if session.is_over:
            raise RpcError("the session is over")
        server, own = origin
        is_new = origin not in session.subscriptions
        if is_new:
            if len(session.subscriptions) >= MOST_SUBSCRIPTIONS:
                raise Busy(f"{MOST_SUBSCRIPTIONS} subscriptions already, the most that one client may have")
            session.subscriptions[origin] = uri  # from now on, so that no update falls in between
        try:
            await self._upstreams[server].subscribe(own, call_of(session))
        except BaseException:
            if is_new and session.subscriptions.get(origin) is uri:  # not one that was made after this one was ended
                self.remove(session, origin)
            raise
        finally:
            if not is_new:  # it was only waited for
                self._release(session, origin)

    def remove(self, session: Session, origin: Origin) -> None:
        if session.subscriptions.pop(origin, None) is not None:
            self._release(session, origin)

    def _release(self, session: Session, origin: Origin) -> None:
        server, uri = origin
        if server in self._upstreams:
            self._upstreams[server].unsubscribe(uri, call_of(session))

    def updates(self, session: Session, origin: Origin, after: int) -> list[tuple[str, bytes]]:
        """Notices of the resource after number `after`."""
        server, uri = origin
        upstream = self._upstreams.get(server)
        connection = None if upstream is None else upstream.apart(call_of(session))
        return self._changes.notices((server if connection is None else connection.topic, uri), after)

    def clear(self, session: Session) -> None:
        """Ends the session and all its subscriptions."""
        session.end()
        for origin in list(session.subscriptions):
            self.remove(session, origin)
