"""The history of calls over REST."""

from typing import Final, Protocol, get_args

from msgspec import Raw
from starlette.responses import Response

from mcp_hub.clock import wall_time
from mcp_hub.fronts.rest.calls import RestCalls, tool_call
from mcp_hub.fronts.rest.exchange import Handlers, RestRequest, answer, check_operator
from mcp_hub.fronts.rest.problem import Problem, unknown_call
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.history import (
    MOST,
    MOST_DETAILS,
    SPANS,
    HistoryCall,
    HistoryCleared,
    HistoryFigures,
    HistoryPage,
    HistoryQuery,
    PastStatus,
    moment,
)
from mcp_hub.sessions.session import Caller

_LIMIT: Final = 100
_LONGEST: Final = 300
"""Characters of a name that is asked for."""


class HubHistory(Protocol):
    """A caller's ended calls. All raise `StoreError` and `Problem`."""

    async def page(self, caller: Caller, query: HistoryQuery) -> HistoryPage:
        """Matching calls, newest first."""

    async def call(self, caller: Caller, id_: str) -> HistoryCall | None:
        """One call with texts; None if unknown or foreign."""

    async def figures(self, caller: Caller, span: str, query: HistoryQuery) -> HistoryFigures:
        """Figures of matching calls over one of `SPANS`."""

    async def clear(self) -> int:
        """Removes all calls; returns their number."""

    async def rerun(self, caller: Caller, id_: str) -> tuple[str, Raw]:
        """Tool and arguments. Raises `Problem` 404 and 409."""


class _History:
    """Serves `/v1/history…`. Without a `history` it is empty."""

    def __init__(self, history: HubHistory | None, calls: RestCalls) -> None:
        self._history = history
        self._calls = calls

    async def list_calls(self, request: RestRequest) -> Response:
        query = _query(request)
        page = HistoryPage([], "off") if self._history is None else await self._history.page(request.caller, query)
        return answer(page)

    async def get_call(self, request: RestRequest) -> Response:
        call = None if self._history is None else await self._history.call(request.caller, request.path["id"])
        if call is None:
            raise unknown_call()
        return answer(call)

    async def get_figures(self, request: RestRequest) -> Response:
        span = request.query_params.get("span", "1d")
        if span not in SPANS:
            raise _invalid("span", f"has to be one of {', '.join(SPANS)}")
        if self._history is None:
            raise unknown_call()
        return answer(await self._history.figures(request.caller, span, _query(request)))

    async def run_again(self, request: RestRequest) -> Response | None:
        if self._history is None:
            raise unknown_call()
        await request.shaped(dict[str, Raw])
        name, arguments = await self._history.rerun(request.caller, request.path["id"])
        return await self._calls.serve(request, tool_call(name, arguments, path=request.query_params.get("path")))

    async def clear(self, request: RestRequest) -> Response:
        """Removes all calls, for operators only."""
        check_operator(request.caller, "The history is that of everybody.")
        return answer(HistoryCleared(0 if self._history is None else await self._history.clear()))


def history_handlers(history: HubHistory | None, calls: RestCalls) -> Handlers:
    """`/v1/history`."""
    served = _History(history, calls)
    return {
        "listPastCalls": served.list_calls,
        "clearHistory": served.clear,
        "pastFigures": served.get_figures,
        "getPastCall": served.get_call,
        "runAgain": served.run_again,
    }


def _query(request: RestRequest) -> HistoryQuery:
    parameters = request.query_params
    details = _flag(request, "details")
    status = parameters.get("status", "")
    if status and status not in get_args(PastStatus):
        raise _invalid("status", f"has to be one of {', '.join(get_args(PastStatus))}")
    names = {
        name: parameters.get(name, "")
        for name in ("server", "tool", "client", "principal", "method", "parent", "before")
    }
    for name, value in names.items():
        if len(value) > _LONGEST:
            raise _invalid(name, f"has more than {_LONGEST} characters")
    if not request.caller.operates:
        names["principal"] = ""
    return HistoryQuery(
        **names,
        status=status,
        failed=_flag(request, "failed"),
        since=_moment(request, "since", 0.0),
        until=_moment(request, "until", float("inf")),
        limit=request.count("limit", _LIMIT, MOST_DETAILS if details else MOST),
        details=details,
    )


def _flag(request: RestRequest, name: str) -> bool:
    value = request.query_params.get(name, "0")
    if value not in ("0", "1"):
        raise _invalid(name, "has to be 0 or 1")
    return value == "1"


def _moment(request: RestRequest, name: str, default: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return moment(text, wall_time())
    except ValueError as problem:
        raise _invalid(name, f"cannot be {hide_head(text, 50)!r}: {problem}") from None


def _invalid(name: str, reason: str) -> Problem:
    return Problem(400, "invalid_parameter", f"{name} {reason}")
