"""The resources that clients are subscribed to, each with one reference at its upstream.

Handshake clients subscribe for as long as their session lives, a modern one for as long as its `subscriptions/listen`,
which is a session of its own.
"""

from collections.abc import Mapping
from typing import Final

from mcp_hub.call import Call, Upstream
from mcp_hub.errors import Busy, RpcError
from mcp_hub.notices import Notices, Origin
from mcp_hub.sessions.session import Session
from mcp_hub.types import CallId

MOST_SUBSCRIPTIONS: Final = 1000
"""Of one session."""

_NO_ID: Final = CallId("")


def call_of(session: Session) -> Call:
    """A call that is never sent: what upstreams know a caller by."""
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
    """Pairs what is in `Session.subscriptions` with references at the upstreams.

    Both are at the connection that runs the calls of the session.
    """

    def __init__(self, upstreams: Mapping[str, Upstream], changes: Notices) -> None:
        self._upstreams = upstreams
        self._changes = changes

    async def add(self, session: Session, origin: Origin, uri: str) -> None:
        """Subscribes a session to a resource that it knows as `uri`; returns when the upstream is.

        Raises `Busy` over the limit, and what `Upstream.subscribe` raises; the session is then not subscribed.
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
        """Ends a subscription, if there is one."""
        if session.subscriptions.pop(origin, None) is not None:
            self._release(session, origin)

    def _release(self, session: Session, origin: Origin) -> None:
        """Nothing is left to be given back at a server that is not configured any more."""
        server, uri = origin
        if server in self._upstreams:
            self._upstreams[server].unsubscribe(uri, call_of(session))

    def updates(self, session: Session, origin: Origin, after: int) -> list[tuple[str, bytes]]:
        """The notices about a resource for this session since `Notices.noted` was `after`, as `Notices.notices`."""
        server, uri = origin
        upstream = self._upstreams.get(server)
        connection = None if upstream is None else upstream.apart(call_of(session))
        return self._changes.notices((server if connection is None else connection.topic, uri), after)

    def clear(self, session: Session) -> None:
        """Ends them all; there will be no more."""
        session.end()
        for origin in list(session.subscriptions):
            self.remove(session, origin)
