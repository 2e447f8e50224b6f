"""Calls that wait for a person's yes, on the dashboard and on the page of a link.

The page at `/ask` has no data. A link's ticket stands behind its `#`, so programs that only look at links do not send
it. It opens one question, for its principal or an operator with their token; only a POST answers.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub.call import Call
from mcp_hub.errors import HubError
from mcp_hub.fronts.dashboard.shell import page_of, static_files
from mcp_hub.fronts.http.auth import Refusal, is_own_page
from mcp_hub.fronts.http.response import Message
from mcp_hub.fronts.rest.exchange import RestRequest, answer, refusal
from mcp_hub.fronts.rest.problem import Problem, problem_for
from mcp_hub.masking import hide_head, shown
from mcp_hub.sessions.session import Caller
from mcp_hub.types import CallId

_TEXT: Final = 300
_LARGEST: Final = 4096
"""Bytes of a body."""
_FILES: Final = {"/ask": "ask.html", "/ask/ask.js": "ask.js", "/ask/style.css": "style.css"}


class _Ask(Protocol):
    """A call that waits."""

    call: Call
    since: float

    @property
    def expires(self) -> float: ...
    @property
    def rule(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def choices(self) -> Mapping[str, str]: ...

    def may_answer(self, principal: str, *, operates: bool, has_ticket: bool) -> bool: ...

    def settle(self, answer: str, by: str) -> bool:
        """Takes an answer; False if it has one."""


class _AskDesk(Protocol):
    @property
    def pending(self) -> Mapping[CallId, _Ask]: ...

    def opened(self, ticket: str) -> _Ask | None:
        """The call that a ticket is for."""


Desk = Callable[[], _AskDesk | None]
"""Gives the calls that wait; None if no rule asks."""


class _AskSummary(Struct, frozen=True):
    """A call that waits. `at` and `expires` in Unix seconds; `may_answer`: the one who looks at it."""

    id: CallId
    server: str
    tool: str
    arguments: str
    principal: str
    client: str
    rule: str
    at: float
    expires: float
    choices: dict[str, str]
    may_answer: bool


class _AskList(Struct):
    """Calls that wait, oldest first."""

    asks: list[_AskSummary]


class _AskAnswer(Struct, forbid_unknown_fields=True):
    id: CallId
    answer: str


class _Ticket(Struct, forbid_unknown_fields=True):
    ticket: str
    answer: str | None = None


def waiting_for(caller: Caller, desk: _AskDesk | None) -> _AskList:
    """The calls that a caller may see: an operator all, others their own."""
    pending = [] if desk is None else list(desk.pending.values())
    return _AskList(
        [_summary(ask, caller) for ask in pending if caller.operates or ask.call.principal == caller.principal]
    )


async def settle(desk: _AskDesk | None, request: RestRequest) -> Response:
    """Takes an answer of the dashboard. Raises `Problem`."""
    caller, body = request.caller, await request.shaped(_AskAnswer)
    ask = None if desk is None else desk.pending.get(body.id)
    if ask is None or not (caller.operates or ask.call.principal == caller.principal):
        raise _over()
    _settle(ask, caller, body.answer, has_ticket=False)
    return Response(status_code=204)


def _settle(ask: _Ask, caller: Caller, chosen: str, *, has_ticket: bool) -> None:
    if chosen not in ask.choices:
        raise Problem(400, "invalid_body", f"answer has to be one of {', '.join(ask.choices)}")
    if not ask.may_answer(caller.principal, operates=caller.operates, has_ticket=has_ticket):
        reason = "This call waits for somebody else: an operator, or who has got its link."
        raise Problem(403, "not_yours", reason)
    if not ask.settle(chosen, _name(caller, has_ticket=has_ticket)):
        raise _over()


def _name(caller: Caller, *, has_ticket: bool) -> str:
    role = "an operator" if caller.operates else "its person"
    return (
        f"{shown(hide_head(caller.principal, _TEXT))} ({role}, {'by the link' if has_ticket else 'on the dashboard'})"
    )


def _over() -> Problem:
    return Problem(404, "not_waiting", "No such call waits: it was answered, has ended, or is of somebody else.")


def _summary(ask: _Ask, caller: Caller, *, has_ticket: bool = False) -> _AskSummary:
    call = ask.call
    return _AskSummary(
        id=call.id, server=call.upstream, tool=hide_head(ask.tool, _TEXT), arguments=ask.arguments,
        principal=hide_head(call.principal, _TEXT), client=hide_head(call.client_name, _TEXT), rule=ask.rule,
        at=ask.since, expires=ask.expires, choices=dict(ask.choices),
        may_answer=ask.may_answer(caller.principal, operates=caller.operates, has_ticket=has_ticket),
    )  # fmt: skip


def routes(desk: Desk, public_url: Callable[[], str | None]) -> Mapping[str, Route]:
    """The page of links and its request, by path; nothing is there while nothing asks."""
    contents = static_files()

    def mode() -> str:
        return "off" if desk() is None else "full"

    async def question(request: Request) -> Response:
        """Shows the question of a ticket, or takes its answer."""
        try:
            response = await _answered(
                RestRequest(request.scope, request.receive, _unsent, _LARGEST), desk(), public_url()
            )
        except HubError as error:
            response = refusal(problem_for(error))
        response.headers["cache-control"] = "no-store"
        return response

    pages = {
        path: Route(path, page_of(contents[name], name.rpartition(".")[2], mode, _nothing), methods=["GET"])
        for path, name in _FILES.items()
    }
    return {**pages, "/ask/question": Route("/ask/question", question, methods=["POST"])}


async def _unsent(message: Message) -> None:
    """Nothing is sent in parts."""


async def _answered(request: RestRequest, desk: _AskDesk | None, public_url: str | None) -> Response:
    headers = {name.lower(): value for name, value in request.scope["headers"]}
    if not is_own_page(headers, public_url):
        raise Problem(403, "origin_not_allowed", "only the page of the hub itself may ask here")
    request.check_header()
    caller = await request.scope["who"]()
    if isinstance(caller, Refusal):
        raise Problem(caller.status, caller.code, caller.reason)
    body = await request.shaped(_Ticket)
    ask = None if desk is None else desk.opened(body.ticket)
    if ask is None:
        raise _over()
    if not ask.may_answer(caller.principal, operates=caller.operates, has_ticket=True):
        name = shown(hide_head(caller.principal, _TEXT))
        raise Problem(403, "not_yours", f"You are logged in as {name}, and the call is of somebody else.")
    if body.answer is None:
        return answer(_summary(ask, caller, has_ticket=True))
    _settle(ask, caller, body.answer, has_ticket=True)
    return Response(status_code=204)


async def _nothing(request: Request) -> Response:
    return Response(status_code=404)
