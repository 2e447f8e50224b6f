"""The gates of a call in their order. Each is installed only where it is configured.

    profile, filters   not here: a tool that a profile or a filter hides is unknown (`catalog.routes`)
    approval           not here: a definition that waits for approval is not called (`catalog.routes`, `catalog.trust`)
    conditions         `deny_if`, `allow_if`
    cache              a kept result
    rate               so many calls in a time
    ask                a person's yes
    concurrency        so many calls at once: a question to a person takes no place

`ORDER` is this list. A gate makes a step for a tool, or None; the steps of a call are wrapped around its sending, the
first one outermost. Inner calls of scripts pass the same gates.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal, Protocol

from mcp_hub.call import Call, CallChannel, CallHandler, People
from mcp_hub.calls.plan import Sender
from mcp_hub.calls.reading.stored import own_name
from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import not_approved
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.methods import is_foreign
from mcp_hub.types import CallId, RawJson

log = get_logger(__name__)

GateName = Literal["conditions", "cache", "rate", "ask", "concurrency"]
ORDER: Final[tuple[GateName, ...]] = ("conditions", "cache", "rate", "ask", "concurrency")
"""The first one decides first."""
LIMITS: Final[tuple[GateName, ...]] = ("rate", "concurrency")
"""The gates of requests of methods that the hub does not know: the limits of their server."""
Step = Callable[[Call, CallChannel, CallHandler], Awaitable[Completed]]
"""Passes a call on to the handler (the later steps, and the sending), or answers it. Raises `RpcError`."""
StepMaker = Callable[[str, str, str | None], Step | None]
"""Makes the step for a server, its own name of a tool, and the caller's profile; None: the tool does not take
one. Called once for each, until the gates change."""
_WAITS: Final = b'{"gate":'
"""Begins the state of a call that waits at a gate."""
_MOST: Final = 4096
"""Combinations of server, tool and profile that are remembered."""


Decision = tuple[str, str, str]
"""A gate's decision about a call, such as `denied`, the rule that made it, and who decided."""


class _Trail(Protocol):
    """Takes decisions about running calls, and continued calls of lost hubs."""

    decisions: dict[CallId, Decision]

    def watch(self, record: CallRecord) -> None:
        """A call that may ask."""


class QuickStep:
    """A step that can also pass a call in place, without a task."""

    __slots__ = ()

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        """A `Step`."""
        raise NotImplementedError

    def before(self, sender: Sender) -> Sender:
        """A sender with this step before it."""
        raise NotImplementedError


class Gates:
    """One hub's gates. `makers` has those in place; `people` answer where clients cannot."""

    def __init__(self, people: People | None = None) -> None:
        self.people = people
        self.makers: dict[GateName, StepMaker] = {}
        self.states: dict[CallId, RawJson] = {}
        """States of calls that waited at a gate of another hub, until its step takes them."""
        self.trails: list[_Trail] = []
        """The audit, if there is one."""
        self._steps: dict[tuple[str, str, str | None], tuple[Step, ...]] = {}

    def install(self, name: GateName, maker: StepMaker | None) -> None:
        """Puts a gate in place, or takes it away."""
        self._steps.clear()
        if maker is None:
            self.makers.pop(name, None)
        else:
            self.makers[name] = maker

    def steps(self, call: Call) -> tuple[Step, ...]:
        """The steps of a call, in order; most have none."""
        is_tool = call.method == "tools/call"
        if not (is_tool or is_foreign(call.method)):
            return ()
        key = call.upstream, own_name(call) if is_tool else "", call.profile
        steps = self._steps.get(key)
        if steps is None:
            if len(self._steps) >= _MOST:
                self._steps.clear()
            makers = (self.makers[name] for name in (ORDER if is_tool else LIMITS) if name in self.makers)
            steps = self._steps[key] = tuple(step for maker in makers if (step := maker(*key)) is not None)
        return steps

    def judged_again(self, call: Call, handler: CallHandler) -> CallHandler:
        """The handler behind the conditions of now, for a call that has waited: a reload may have changed them."""
        maker = self.makers.get("conditions")
        step = None if maker is None else maker(call.upstream, own_name(call), call.profile)
        return handler if step is None else guarded((step,), handler)

    def note(self, call: Call, gate: GateName, decision: str, rule: str, by: str = "") -> None:
        """Logs a decision, and notes it for the audit."""
        if gate in ("conditions", "ask"):
            log.info(
                "call_judged", audit="approval" if gate == "ask" else None, call_id=call.id,
                upstream=call.upstream, tool=hide_head(own_name(call), 200), gate=gate,
                decision=decision, rule=rule, by=hide_head(by, 300), principal=call.principal,
            )  # fmt: skip
        for trail in self.trails:
            trail.decisions[call.id] = decision, rule, by

    async def resume(self, call: Call, channel: CallChannel, state: RawJson, handler: CallHandler) -> Completed:
        """Continues a call that waited at a lost hub's gate. Raises `not_approved` if no gate waits for it now."""

        async def send(call: Call, channel: CallChannel) -> Completed:
            if call.id in self.states:
                raise not_approved("The call was not sent: the rule for which it waited has changed. Call again.")
            return await handler(call, channel)

        self.states[call.id] = state
        try:
            return await guarded(self.steps(call), send)(call, channel)
        finally:
            self.states.pop(call.id, None)


def waits(state: RawJson) -> bool:
    """Whether a call with this state waits at a gate."""
    return bytes(memoryview(state)[: len(_WAITS)]) == _WAITS


def guarded(steps: tuple[Step, ...], handler: CallHandler) -> CallHandler:
    """The handler behind these steps."""
    for step in reversed(steps):
        handler = partial(_through, step, handler)
    return handler


def in_place_of(steps: tuple[Step, ...], sender: Sender) -> Sender | None:
    """The sender behind these steps; None: one of them needs a task."""
    for step in reversed(steps):
        if not isinstance(step, QuickStep):
            return None
        sender = step.before(sender)
    return sender


async def _through(step: Step, handler: CallHandler, call: Call, channel: CallChannel) -> Completed:
    return await step(call, channel, handler)
