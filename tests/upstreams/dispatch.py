"""Takes one decoded message to its answer, whatever it came by: `eras` decides what it may do, `methods` do it."""

import os
import sys
from typing import Any

from tests.upstreams.eras import INVALID_PARAMS, METHOD_NOT_FOUND, Channel, Request, RpcError, era_of
from tests.upstreams.fault_base import Fault
from tests.upstreams.instance import Session
from tests.upstreams.methods import METHODS

PARSE_ERROR = -32700
INVALID_REQUEST = -32600


def refusal(code: int, message: str, request_id: Any = None) -> dict[str, Any]:
    """An error answer to a message that is no request, or is not let in."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


class Dispatcher:
    """The same for every connection; `fault` may swallow or spoil a request before anybody else sees it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def message(self, session: Session, message: Any, channel: Channel, headers: dict[str, str] | None = None) -> None:
        """Act on it; what answers a request, or belongs to it, goes to `channel`. `headers` are those of HTTP."""
        if not isinstance(message, dict):
            channel.send(refusal(INVALID_REQUEST, "Invalid request"))
        elif "method" not in message:
            session.answered(message)
        elif "id" not in message:
            self._notification(session, message["method"], message.get("params"))
        else:
            self._request(session, message, channel, headers or {})

    def _notification(self, session: Session, method: str, params: Any) -> None:
        if method == "notifications/cancelled" and isinstance(params, dict):
            session.cancel(params.get("requestId"))

    def _request(self, session: Session, message: dict[str, Any], channel: Channel, headers: dict[str, str]) -> None:
        if self.fault.swallows(message["method"]):
            return
        params = message.get("params", {})
        request = Request(message["id"], message["method"], params, channel, headers=headers)
        try:
            if not isinstance(params, dict):
                raise RpcError(INVALID_PARAMS, "Invalid params: not an object")
            self._answer(session, request)
        except RpcError as refused:
            session.fail(request, refused.error)
        except (KeyError, TypeError, ValueError) as wrong:
            session.fail(request, {"code": INVALID_PARAMS, "message": f"Invalid params: {wrong!r}"})

    def _answer(self, session: Session, request: Request) -> None:
        options = session.options
        if request.method == "server/discover" and options.discover != "answer":
            self._refuse_discovery(options.discover)
            return
        request.era = era_of(request, options.era, session.version is not None)
        if request.method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method}")
        if self.fault.requested(session, request):
            return
        if request.method == "tools/call" and self.fault.calling(session, request):
            return
        result = METHODS[request.method](session, request)
        if result is not None:
            session.respond(request, result)

    def _refuse_discovery(self, how: str) -> None:
        if how == "exit":
            print("unexpected request before initialize", file=sys.stderr, flush=True)
            os._exit(1)
