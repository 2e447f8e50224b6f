"""Tools that ask the client something, during a call or outside of any, and what else asks.

A tool answers with `{"nonce", "answers": {key: {"result": …} or {"error": …}}}`, as it arrived, as text and as
`structuredContent`; with the text "client cannot …" where the client has not declared what it would need.
"""

import time
from collections.abc import Callable
from typing import Any

from tests.upstreams.definitions import as_text, registering, text
from tests.upstreams.eras import HANDSHAKE, Request, RpcError
from tests.upstreams.instance import Result, Session, Tool
from tests.upstreams.rounds import Arguments, CannotAsk, Outcomes, Plan, ask_now, converse, question

TOOLS: dict[str, Tool] = {}
tool = registering(TOOLS)

URL_REQUIRED = -32042
COMMON = {"nonce": "string?", "message": "string?", "extra": "object?"}
COMMON |= {"force": "boolean?", "delay": "number?", "give_up": "number?", "no_state": "boolean?"}
COMMON |= {"own_process": "boolean?"}


def asks(description: str, /, **types: str) -> Callable[[Callable[..., Plan]], Callable[..., Plan]]:
    """Register a tool that follows a plan; it also takes the `COMMON` arguments."""

    def register(plan: Callable[..., Plan]) -> Callable[..., Plan]:
        def run(session: Session, request: Request, arguments: Arguments) -> Result:
            return converse(session, request, plan(session, request, arguments), arguments, _answer)

        run.__name__ = plan.__name__
        tool(description, is_slow=True, **types, **COMMON)(run)
        return plan

    return register


def _answer(value: Any) -> dict[str, Any]:
    return text(value) if isinstance(value, str) else text(value, structuredContent=value)


def _told(arguments: Arguments, answers: Outcomes) -> dict[str, Any]:
    return {"nonce": arguments.get("nonce"), "answers": answers}


@asks("Asks a form question.", schema="object?")
def ask_form(session: Session, request: Request, arguments: Arguments) -> Plan:
    return _told(arguments, (yield {"form": question(session, request, "form", arguments)}))


@asks("Asks to open a URL; notifications/elicitation/complete follows (handshake), complete_after seconds later.",
      url="string?", complete_after="number?")  # fmt: skip
def ask_url(session: Session, request: Request, arguments: Arguments) -> Plan:
    ask = question(session, request, "url", arguments)
    answers = yield {"url": ask}
    if request.era == HANDSHAKE and ask.params is not None:
        _complete(session, request, ask.params["elicitationId"], arguments.get("complete_after", 0))
    return _told(arguments, answers)


def _complete(session: Session, request: Request, elicitation_id: str, seconds: float) -> None:
    """Say that the user is done out there: before the result, or so much later, with no request."""
    params = {"elicitationId": elicitation_id}
    if not seconds:
        session.notify("notifications/elicitation/complete", params, request.channel)
        return

    def later() -> None:
        time.sleep(seconds)
        session.notify("notifications/elicitation/complete", params)

    session.start(later)


@asks("Asks the client's model.")
def ask_sampling(session: Session, request: Request, arguments: Arguments) -> Plan:
    return _told(arguments, (yield {"sampling": question(session, request, "sampling", arguments)}))


@asks("Asks for the client's roots.")
def ask_roots(session: Session, request: Request, arguments: Arguments) -> Plan:
    return _told(arguments, (yield {"roots": question(session, request, "roots", arguments)}))


@asks("Asks two questions, one after the other; kinds are two of form, url, sampling, roots.", kinds="array?")
def ask_two(session: Session, request: Request, arguments: Arguments) -> Plan:
    first, second = arguments.get("kinds", ("form", "form"))
    answers = yield {"first": question(session, request, first, arguments, "first")}
    answers |= yield {"second": question(session, request, second, arguments, "second")}
    return _told(arguments, answers)


@asks("Asks two questions at once; kinds are two of form, url, sampling, roots.", kinds="array?")
def ask_both(session: Session, request: Request, arguments: Arguments) -> Plan:
    first, second = arguments.get("kinds", ("form", "form"))
    asked = {"first": question(session, request, first, arguments, "first")}
    asked |= {"second": question(session, request, second, arguments, "second")}
    return _told(arguments, (yield asked))


@asks("Asks a form question, then works for so long, with progress in so many steps (3).",
      seconds="number", steps="integer?")  # fmt: skip
def ask_then_wait(session: Session, request: Request, arguments: Arguments) -> Plan:
    answers = yield {"form": question(session, request, "form", arguments)}
    steps = arguments.get("steps", 3)
    for i in range(1, steps + 1):
        if request.cancelled.wait(arguments["seconds"] / steps):
            break
        session.progress(request, i, total=steps, message=f"{arguments.get('nonce', '')} {i}".strip())
    return _told(arguments, answers)


def _url_plan(session: Session, request: Request, arguments: Arguments) -> Plan:
    urls = {f"url{i}": question(session, request, "url", arguments, f"url{i}") for i in range(arguments.get("urls", 1))}
    return _told(arguments, (yield urls))


@tool(
    "Refuses the first n calls (1) of a nonce with -32042 and so many URLs (handshake), or asks for them (modern).",
    is_slow=True,
    n="integer?",
    urls="integer?",
    complete_after="number?",
    **COMMON,
)
def url_required(session: Session, request: Request, arguments: Arguments) -> Result:
    plan = _url_plan(session, request, arguments)
    if request.era != HANDSHAKE:
        return converse(session, request, plan, arguments, _answer)
    refused = session.instance.refused
    nonce = str(arguments.get("nonce"))
    calls = refused.get(nonce, 0)
    if calls >= arguments.get("n", 1):
        return _answer({"nonce": arguments.get("nonce"), "refused": calls})
    refused[nonce] = calls + 1
    elicitations = [ask.params for ask in next(plan).values() if ask.params is not None]
    if "complete_after" in arguments:
        for params in elicitations:
            _complete(session, request, params["elicitationId"], arguments["complete_after"])
    raise RpcError(URL_REQUIRED, "This call needs the user at a URL first", {"elicitations": elicitations})


def ask_first(session: Session, request: Request, arguments: Arguments, shape: Callable[[str], Result]) -> None:
    """Answer a request that is no tool call after a form question; `shape` makes the result of a text."""

    def work() -> Result:
        plan = ask_form(session, request, arguments)
        return converse(session, request, plan, arguments, lambda value: shape(as_text(value)))

    session.serve(request, work, is_slow=True, nonce=arguments.get("nonce"))


# -- questions that belong to no call


def _ask_alone(session: Session, kind: str, arguments: Arguments, request: Request | None = None) -> None:
    """Ask, wait, and note in the journal what came back: `answered`."""
    noted = {"kind": kind, "nonce": arguments.get("nonce")}
    try:
        asked = {"q": question(session, request, kind, arguments)}
        outcome = ask_now(session, asked, arguments, request)["q"]
    except CannotAsk as cannot:
        outcome = {"cannot": str(cannot)}
    session.journal.event("answered", **noted, **outcome)


def ask_during_completion(session: Session, request: Request, completed: dict[str, Any]) -> Result:
    """Ask before completing; a modern client is asked by result, which no completion may do."""
    if request.era == HANDSHAKE:

        def work() -> Result:
            _ask_alone(session, "form", {}, request)
            return completed

        session.serve(request, work, is_slow=True)
        return None
    return converse(session, request, ask_form(session, request, {}), {}, lambda _: completed)
