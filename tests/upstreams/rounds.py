"""Questions to the client: requests on a handshake connection, rounds on a modern one (2026-07-28 basic/patterns/mrtr).

Who asks is a generator that yields rounds of questions, is sent their outcomes, and returns what it made of them. On a
modern connection it is run anew for each retry; the answers so far travel in `requestState`.
"""

import base64
import hashlib
import hmac
import json
import os
import uuid
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

from tests.upstreams.eras import CAPABILITIES, HANDSHAKE, INVALID_PARAMS, Request, RpcError
from tests.upstreams.instance import Result, Session

KINDS = ("form", "url", "sampling", "roots")
NONCE = "example.org/nonce"
KEY = b"the same in every process, so that a retry may meet another one"
CHANGED_BY_RETRIES = ("_meta", "inputResponses", "requestState")
FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}

Arguments = dict[str, Any]
Outcomes = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Ask:
    """One question of one of the `KINDS`."""

    kind: str
    params: dict[str, Any] | None

    @property
    def method(self) -> str:
        return {"sampling": "sampling/createMessage", "roots": "roots/list"}.get(self.kind, "elicitation/create")


Plan = Generator[dict[str, Ask], Outcomes, Any]


class CannotAsk(Exception):
    """The client has not declared what a question needs."""


def question(session: Session, request: Request | None, kind: str, arguments: Arguments, label: str = "") -> Ask:
    """A question that carries the `nonce` of the arguments in its message and its `_meta`; `extra` is added to it."""
    nonce = arguments.get("nonce")
    message = arguments.get("message") or f"{label or kind} {nonce or ''}".strip()
    is_handshake = request is None or request.era == HANDSHAKE
    params: dict[str, Any] = {}
    if kind == "form":
        has_mode = not is_handshake or (session.version or "") >= "2025-11-25"
        params = {"mode": "form"} if has_mode else {}
        params |= {"message": message, "requestedSchema": arguments.get("schema") or FORM}
    elif kind == "url":
        params = {"mode": "url", "message": message, "url": arguments.get("url") or f"https://example.org/{nonce}"}
        params |= {"elicitationId": uuid.uuid4().hex} if is_handshake else {}
    elif kind == "sampling":
        params = {"messages": [{"role": "user", "content": {"type": "text", "text": message}}], "maxTokens": 100}
    elif kind != "roots":
        raise ValueError(f"no such kind of question: {kind}")
    params |= {"_meta": {NONCE: nonce}} if nonce is not None else {}
    return Ask(kind, {**params, **(arguments.get("extra") or {})} or None)


def ask_now(session: Session, asks: dict[str, Ask], arguments: Arguments, request: Request | None = None) -> Outcomes:
    """Ask a handshake client all at once and wait for every answer, `give_up` seconds for each if that is given."""
    check(session, request, asks.values(), arguments)
    asked = {key: session.ask(ask.method, ask.params, request) for key, ask in asks.items()}
    return {key: session.outcome(question, arguments.get("give_up")) for key, question in asked.items()}


def converse(
    session: Session, request: Request, plan: Plan, arguments: Arguments, shape: Callable[[Any], Result]
) -> Result:
    """Run the plan as the request's era has it; `shape` makes a result of what it returns, or of a text.

    Arguments that every plan obeys: `force` (ask whatever the client declared), `delay` (seconds before the first
    question), `give_up` (handshake: seconds to wait for an answer), `no_state` (modern: leave `requestState` out),
    `own_process` (modern: no other process understands the state).
    """
    is_retry = any(key in request.params for key in CHANGED_BY_RETRIES[1:])
    if not is_retry and request.cancelled.wait(arguments.get("delay", 0)):
        return None
    try:
        if request.era != HANDSHAKE:
            return _by_result(session, request, plan, arguments)
        asks = next(plan)
        while not request.cancelled.is_set():
            asks = plan.send(ask_now(session, asks, arguments, request))
    except StopIteration as done:
        return shape(done.value)
    except CannotAsk as cannot:
        return shape(str(cannot))
    return None


def _by_result(session: Session, request: Request, plan: Plan, arguments: Arguments) -> Result:
    """The first round that is not answered completely, or `StopIteration` with what the plan returned."""
    state, given = _opened(request), request.params.get("inputResponses")
    if given is not None and not isinstance(given, dict):
        raise RpcError(INVALID_PARAMS, "inputResponses is not an object")
    rounds: list[Outcomes] = state["rounds"] if state else []
    partial: Outcomes = state["partial"] if state else {}
    asks = next(plan)
    for outcomes in rounds:
        asks = plan.send(outcomes)
    if state is not None or given is not None:
        answers = given or {}
        partial |= {key: {"result": answers[key]} for key in asks if key in answers}
        if asks.keys() <= partial.keys():
            rounds.append(partial)
            asks, partial = plan.send(partial), {}
    open_ = {key: ask for key, ask in asks.items() if key not in partial}
    check(session, request, open_.values(), arguments)
    result: dict[str, Any] = {"resultType": "input_required"}
    if open_:
        result["inputRequests"] = {
            key: {"method": ask.method, **({} if ask.params is None else {"params": ask.params})}
            for key, ask in open_.items()
        }
    if not (open_ and arguments.get("no_state")):
        process = os.getpid() if arguments.get("own_process") else None
        sealed = {"rounds": rounds, "partial": partial, "about": _digest(request), "process": process}
        result["requestState"] = _sealed(sealed)
    return result


def check(session: Session, request: Request | None, asks: Iterable[Ask], arguments: Arguments) -> None:
    """Raises: `CannotAsk` unless the client declared all of it, or `force` is set."""
    declared = session.capabilities if request is None or request.era == HANDSHAKE else request.meta[CAPABILITIES]
    elicitation = declared.get("elicitation")
    can = {
        "form": elicitation is not None and ("form" in elicitation or not elicitation),
        "url": "url" in (elicitation or {}),
        "sampling": "sampling" in declared,
        "roots": "roots" in declared,
    }
    lacking = sorted({ask.kind for ask in asks if not can[ask.kind]})
    if lacking and not arguments.get("force"):
        raise CannotAsk(f"client cannot {', '.join(lacking)}")


# -- the state that clients carry


def _digest(request: Request) -> str:
    """What a retry must have in common with the request it retries."""
    same = {key: value for key, value in request.params.items() if key not in CHANGED_BY_RETRIES}
    return hashlib.sha256(json.dumps([request.method, same], sort_keys=True).encode()).hexdigest()


def _mac(body: str) -> str:
    return hmac.new(KEY, body.encode(), "sha256").hexdigest()


def _sealed(state: dict[str, Any]) -> str:
    body = base64.urlsafe_b64encode(json.dumps(state).encode()).decode()
    return f"{body}.{_mac(body)}"


def _opened(request: Request) -> dict[str, Any] | None:
    """The state that the request carries. Raises: `RpcError` unless it is ours, untouched, and of such a request."""
    if "requestState" not in request.params:
        return None
    body, _, mac = str(request.params["requestState"]).partition(".")
    if not hmac.compare_digest(_mac(body).encode(), mac.encode("utf-8", "replace")):
        raise RpcError(INVALID_PARAMS, "requestState is not what was sent")
    state: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body))
    if state["process"] not in (None, os.getpid()):
        raise RpcError(INVALID_PARAMS, "requestState is of another process")
    if state["about"] != _digest(request):
        raise RpcError(INVALID_PARAMS, "requestState belongs to another request")
    return state
