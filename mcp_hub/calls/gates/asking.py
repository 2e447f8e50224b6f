"""Asks for a person's yes to one call, before anything of it is sent.

The caller is asked if it can be and the rule lets it; else people: on the dashboard, or by a link. Their question is
not in the call's log, so that the caller cannot answer it.

The wait is durable: another hub that takes the call up asks again, and a sent link is valid there.
"""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.call import LOCAL_PRINCIPAL, Call, CallChannel, CallEnded, CallHandler, Question
from mcp_hub.calls.code.consent import NO, chosen, elicitation, shown_arguments
from mcp_hub.calls.gates.conditions import Facts, Test, is_met
from mcp_hub.calls.gates.steps import Gates, Step
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.clock import wall_time
from mcp_hub.errors import CallCancelled, InvalidParams, RpcError, not_approved, owner_lost
from mcp_hub.events import Completed, hubs_message
from mcp_hub.masking import hide_head
from mcp_hub.protocol.shape.questions import ELICIT, can_answer, may_ask
from mcp_hub.types import CallId, Era, RawJson, plural

_MOST: Final = 1024
"""Calls that wait for people at once."""
_EACH: Final = 64
"""Calls of one principal among them."""
_GRANTS: Final = 4096
"""Answers for a session that are remembered."""
_BACK: Final = 20.0
"""Seconds for people to come back to their page after a restart of the hub."""
_FORGOTTEN: Final = 60.0
"""Seconds without an answer on an open page, after which the link is sent nevertheless."""
_LOOK: Final = 1.0
"""Seconds between looks at who is there."""
_EARLY: Final = 0.2
"""Seconds by which this wait ends before the deadline of a question, which would leave the outcome open."""
YES: Final = "yes"
ANY: Final = "any"
_NO_ANSWER: Final = "nobody answered in time (hub.limits.question_timeout), which counts as no"
_NOBODY: Final = "nobody can be asked: no page of the hub is open, and there is no hub.ask_webhook"
_ALWAYS: Final = {YES: "yes, this call", NO: NO}
_ONCE: Final = {YES: "yes, these arguments in this session", ANY: "yes, any arguments in this session", NO: NO}
_Key = tuple[str, ...]


class AskRule(msgspec.Struct, frozen=True):
    """A rule at `path` of the configuration. `always`: each call, else all arguments once in a session.

    `by_person` leaves the caller out. Without `tests` it holds for every call; `unread_only`: not for read-only tools.
    """

    path: str
    always: bool = True
    by_person: bool = False
    unread_only: bool = False
    tests: tuple[Test, ...] = ()


def strictest(rules: Sequence[AskRule], facts: Facts, *, is_read_only: bool) -> AskRule | None:
    """All rules of a call, as one; None: nobody is asked."""
    applicable = [rule for rule in rules if not (rule.unread_only and is_read_only) and is_met(rule.tests, facts)]
    if not applicable:
        return None
    path = next((rule.path for rule in applicable if rule.always), applicable[0].path)
    return AskRule(path, any(rule.always for rule in applicable), any(rule.by_person for rule in applicable))


class _Wait(msgspec.Struct, frozen=True, tag="ask", tag_field="gate"):
    """The state of a wait, which another hub continues. `until` in Unix seconds; `ticket`: the hash of the link's.

    `definition` was shown. `is_sent`: the link is out. `admitted`: the hub took calls of this caller then.
    """

    until: float
    rule: str
    definition: str
    always: bool
    by_person: bool
    ticket: str = ""
    is_sent: bool = False
    admitted: bool = False


_wait_of = msgspec.json.Decoder(_Wait).decode


class PendingAsk:
    """A call that waits for people. `ticket` opens it; empty where another hub has sent the link."""

    def __init__(self, call: Call, wait: _Wait, ticket: str, note_sent: Callable[[], None]) -> None:
        self.call = call
        self.since = wall_time()
        self.ticket = ticket
        self.answered = anyio.Event()
        self.answer = NO
        self.by = ""
        self.is_sent = wait.is_sent
        self._wait = wait
        self._note_sent = note_sent

    @property
    def expires(self) -> float:
        """Unix seconds."""
        return self._wait.until

    @property
    def rule(self) -> str:
        return self._wait.rule

    @property
    def tool(self) -> str:
        return exported_name(self.call)

    @property
    def arguments(self) -> str:
        return _arguments(self.call)

    @property
    def choices(self) -> Mapping[str, str]:
        return _choices(self._wait)

    def opens(self, secret: str) -> bool:
        return bool(self._wait.ticket) and compare_digest(_hash(secret), self._wait.ticket)

    def sent(self) -> None:
        """The link has reached people."""
        if not self.is_sent:
            self.is_sent = True
            self._note_sent()

    def may_answer(self, principal: str, *, operates: bool, has_ticket: bool) -> bool:
        """Whether this principal may answer.

        A caller whom the rule leaves out cannot allow its own call, but by a link, which went to a person.
        """
        is_own = principal == self.call.principal
        if has_ticket or not self._wait.by_person:
            return operates or is_own
        return operates and (not is_own or principal == LOCAL_PRINCIPAL)

    def settle(self, answer: str, by: str) -> bool:
        """Takes an answer; False if it has one."""
        if self.answered.is_set():
            return False
        self.answer, self.by = answer if answer in self.choices else NO, by
        self.answered.set()
        return True


Notify = Callable[[PendingAsk], bool]
"""Sends the link of a call soon, once; False: there is nowhere to send it."""


class Asking:
    """The gate `ask`. `seconds`: for an answer. `definition`: the hash of a tool's present definition.

    `notify` sends links. `is_offered`: whether the caller gets the tool now; `admits`: whether its token, or its
    issuer's, is still taken.
    """

    def __init__(
        self, gates: Gates, seconds: Callable[[], float], definition: Callable[[Call], str], notify: Notify,
        is_offered: Callable[[Call], bool], admits: Callable[[Call], bool],
    ) -> None:  # fmt: skip
        self._gates = gates
        self._seconds = seconds
        self._definition = definition
        self._notify = notify
        self._is_offered = is_offered
        self._admits = admits
        self.pending: dict[CallId, PendingAsk] = {}
        """Oldest first."""
        self._grants: OrderedDict[_Key, None] = OrderedDict()
        self._going: OrderedDict[_Key, None] = OrderedDict()
        """Calls that a modern server has answered with a question of its own."""

    def step(self, rule_for: Callable[[Call], AskRule | None]) -> Step:
        """The step of a tool with these rules."""

        async def step(call: Call, channel: CallChannel, proceed: CallHandler) -> Completed:
            state, rule = self._gates.states.pop(call.id, None), rule_for(call)
            if state is None:
                return await proceed(call, channel) if rule is None else await self._asked(call, channel, proceed, rule)
            wait = _wait_of(state)
            if rule is not None:  # rules of today may be stricter
                wait = replace(
                    wait, always=wait.always or rule.always, by_person=wait.by_person or rule.by_person, rule=rule.path
                )
            return await self._waited(call, channel, proceed, wait)

        return step

    async def _asked(self, call: Call, channel: CallChannel, proceed: CallHandler, rule: AskRule) -> Completed:
        definition = self._definition(call)
        exact, any_ = _keys(call, definition)
        goes_on = call.request_state is not None and self._going.pop(exact, exact) is None
        if goes_on or (not rule.always and (exact in self._grants or any_ in self._grants)):
            return await self._sent(call, channel, proceed, definition)
        until = wall_time() + self._seconds()
        wait = _Wait(
            until=until, rule=rule.path, definition=definition, always=rule.always, by_person=rule.by_person,
            admitted=self._admits(call),
        )  # fmt: skip
        return await self._waited(call, channel, proceed, wait)

    async def _waited(self, call: Call, channel: CallChannel, proceed: CallHandler, wait: _Wait) -> Completed:
        lack = can_answer(call.capabilities, call.version, ELICIT, b"{}")
        asks_caller = not (wait.by_person or call.people_only) and lack is None
        was_offered = self._is_offered(call)
        with channel.times.put_off(max(wait.until - wall_time(), 0.0) + _EARLY):
            answer, by = await (self._by_caller if asks_caller else self._by_people)(call, channel, wait)
        if channel.survives:
            raise owner_lost("Another hub has this call by now.", {"outcome": "unknown"})
        self._gates.note(call, "ask", "denied" if answer == NO else "allowed", wait.rule, by)
        if answer == NO:
            return Completed.of(f"{exported_name(call)} was not called: {by}.", is_error=True)
        if channel.stopping is not None:
            raise CallCancelled("The call was cancelled while it waited for a yes.")
        if was_offered and not self._is_offered(call):
            raise changed(call)
        if wait.admitted and not self._admits(call):
            raise not_approved(f"{exported_name(call)} was not called: the token of its caller is not valid any more.")
        if not wait.always:
            self._remember(self._grants, _keys(call, wait.definition)[answer == ANY])
        channel.send(hubs_message(f"allowed by {hide_head(by, 200)}"))
        channel.continuable(None)  # what is sent now is not sent again
        await channel.until_stored(whole=False)
        return await self._sent(call, channel, self._gates.judged_again(call, proceed), wait.definition)

    async def _sent(self, call: Call, channel: CallChannel, proceed: CallHandler, definition: str) -> Completed:
        if self._definition(call) != definition:
            raise changed(call)
        completed = await proceed(replace(call, seen_hash=definition), channel)
        if completed.era is Era.MODERN and may_ask(completed.result):
            self._remember(self._going, _keys(call, definition)[0])
        return completed

    def _remember(self, table: OrderedDict[_Key, None], key: _Key) -> None:
        table[key] = None
        if len(table) > _GRANTS:
            table.popitem(last=False)

    # -- the caller

    async def _by_caller(self, call: Call, channel: CallChannel, wait: _Wait) -> tuple[str, str]:
        params = elicitation(f"Call {exported_name(call)} with {_arguments(call)}?", _choices(wait))
        answered_event, outcomes = anyio.Event(), list[RawJson | RpcError]()

        def answered(outcome: RawJson | RpcError) -> None:
            outcomes.append(outcome)
            answered_event.set()

        channel.continuable(msgspec.json.encode(wait))
        key = channel.ask(Question(ELICIT, params, answered))
        with anyio.move_on_after(max(wait.until - wall_time(), 0.0)):
            await answered_event.wait()
        if not outcomes:
            channel.questions.withdraw(key)
            return NO, _NO_ANSWER
        answer = NO if isinstance(outcomes[0], CallEnded) else chosen(outcomes[0], _choices(wait))
        return answer, "the caller did not allow it" if answer == NO else f"{call.principal}, by its client"

    # -- people

    async def _by_people(self, call: Call, channel: CallChannel, wait: _Wait) -> tuple[str, str]:
        principals = Counter(each.call.principal for each in self.pending.values())
        if principals[call.principal] >= _EACH:
            return NO, f"{plural(principals[call.principal], 'call')} of this principal wait for a yes already"
        if len(self.pending) >= _MOST:
            return NO, f"{plural(len(self.pending), 'call')} of this hub wait for a yes already"
        is_back, secret = wait.ticket != "", ""
        if not wait.is_sent:
            secret = secrets.token_urlsafe(24)
            wait = replace(wait, ticket=_hash(secret))
        with_link = msgspec.json.encode(replace(wait, is_sent=True))
        ticket = f"{call.id}.{secret}" if secret else ""
        pending = self.pending[call.id] = PendingAsk(call, wait, ticket, lambda: channel.continuable(with_link))
        channel.continuable(msgspec.json.encode(wait))
        channel.times.begin_wait("a person's yes")
        channel.send(hubs_message("waits for a person's yes"))
        try:
            return await self._awaited(pending, _BACK if is_back else 0.0)
        finally:
            del self.pending[call.id]
            channel.times.end_wait()

    async def _awaited(self, pending: PendingAsk, patience: float) -> tuple[str, str]:
        """The answer and its giver; `patience`: seconds with people perhaps on their way."""
        while (seconds := pending.expires - wall_time()) > 0:
            people, since = self._gates.people, wall_time() - pending.since
            is_alone = people is None or not people()
            if not pending.is_sent and (is_alone or since >= _FORGOTTEN):
                has_place = self._notify(pending)
                if not has_place and is_alone and since >= patience:
                    return NO, _NOBODY
            with anyio.move_on_after(min(seconds, _LOOK)):
                await pending.answered.wait()
            if pending.answered.is_set():
                return pending.answer, f"{pending.by} did not allow it" if pending.answer == NO else pending.by
        return NO, _NO_ANSWER

    def opened(self, ticket: str) -> PendingAsk | None:
        """The call that a ticket is for."""
        id_, _, secret = ticket.partition(".")
        pending = self.pending.get(CallId(id_))
        return pending if pending is not None and pending.opens(secret) else None


def changed(call: Call) -> InvalidParams:
    """The tool is not the one that was shown."""
    name = exported_name(call)
    reason = "its definition has changed since a person was asked, or a filter hides it now"
    return not_approved(f"{name} was not called: {reason}. Call it again.")


def _choices(wait: _Wait) -> Mapping[str, str]:
    return _ALWAYS if wait.always else _ONCE


def _arguments(call: Call) -> str:
    return shown_arguments(bytes(call.params.get("arguments", b"{}")))


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _keys(call: Call, definition: str) -> tuple[_Key, _Key]:
    """The keys by which a yes is remembered: for these arguments, byte for byte, and for any."""
    who = call.session, call.principal, call.upstream, exported_name(call), definition
    return (*who, sha256(bytes(call.params.get("arguments", b"{}"))).hexdigest()), (*who, ANY)
