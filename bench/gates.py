"""`python -m bench.gates`: CPU that a rate, a policy and the audit add to a call, measured without a hub around it.

The audit's share is that of the loop and of the thread that writes, a line on the disk included.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec

from mcp_hub.app.gates import HubGates
from mcp_hub.call import Call
from mcp_hub.calls.gates.rate import CallLimits
from mcp_hub.calls.gates.steps import Gates, guarded, in_place_of
from mcp_hub.calls.history.audit import AuditTrail
from mcp_hub.calls.history.audit_lines import ArgumentRule, LineRules
from mcp_hub.calls.history.batches import ToolKeeping
from mcp_hub.calls.history.waiting import CallQueue
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import new_record
from mcp_hub.clock import SystemClock
from mcp_hub.config.schema.settings import Settings
from mcp_hub.events import Completed
from mcp_hub.ids import new_call_id
from mcp_hub.stores.audit_file import AuditFile
from mcp_hub.stores.documents import LimitRule
from mcp_hub.types import Era

_CALLS, _ROUNDS = 4000, 25
_LIMITS = TimeLimits(60, 60)
_ARGUMENTS = b'{"text":"%b"}' % (b"the quick brown fox " * 5)


def _call() -> Call:
    params = {"name": msgspec.Raw(b'"echo"'), "arguments": msgspec.Raw(_ARGUMENTS)}
    return Call(new_call_id(), "s", "tools/call", params, {}, "session", "local", Era.HANDSHAKE, {})


class _Sender:
    """A server that answers at once."""

    def begin(self, call: Call, channel: object) -> "_Sender":
        return self

    async def call(self, call: Call, channel: object) -> Completed:
        return Completed(b"{}")


def _gated(gates: Gates, call: Call) -> float:
    sender, began = cast("Any", _Sender()), time.process_time()
    for _ in range(_CALLS * _ROUNDS):
        first, handler = sender, sender.call
        if gates.makers and (steps := gates.steps(call)):
            handler, first = guarded(steps, handler), in_place_of(steps, sender)
        first.begin(call, None)
    return (time.process_time() - began) / (_CALLS * _ROUNDS) * 1e6


def rate() -> float:
    """Microseconds that a rate adds to a call."""
    gates = Gates()
    plain = _gated(gates, _call())
    rule = LimitRule("servers.s", 10_000, 0.001)
    gates.install("rate", CallLimits(lambda server, tool: (rule, None), {"s": (_LIMITS, _LIMITS)}, SystemClock()))
    return _gated(gates, _call()) - plain


_POLICY: Final = {
    "deny_if": [
        {"arguments": {"repo": "*/secrets"}},
        {"arguments": {"path": ["/etc/*", "/root/*"]}, "client": "old-*"},
    ],
    "allow_if": [{"claims": {"groups": "admin"}}, {"arguments": {"text": "the *"}, "principal": "lo*"}],
}


def policy() -> float:
    """Microseconds that two conditions of `deny_if` and two of `allow_if` add to a call that they let pass."""
    settings = Settings.model_validate(
        {"servers": {"s": {"url": "https://s.example", "per_tool": {"ec*": _POLICY}}}}, context={"env": {}}
    )
    gates = Gates()
    call = msgspec.structs.replace(_call(), claims='{"groups":["team","staff"],"sub":"ann"}')
    plain = _gated(gates, call)
    current = SimpleNamespace(settings=settings)
    HubGates(cast("Any", SimpleNamespace(starter=SimpleNamespace(gates=gates))), cast("Any", current), {}).use(settings)
    return _gated(gates, call) - plain


def audit(arguments: ArgumentRule) -> float:
    """Microseconds that the audit adds to a call."""
    records = [new_record(_call(), cast("Any", None), _LIMITS, SystemClock()) for _ in range(_CALLS)]
    for record in records:
        record.log.begin()
        record.log.append(Completed(b'{"content":[]}', is_plain=True))
    with TemporaryDirectory() as folder:
        place = AuditFile(Path(folder) / "audit.jsonl", 64 << 20, 3, Path(folder) / "state")
        trail = AuditTrail(place, LineRules(arguments, lambda server, tool: ToolKeeping(), lambda: b"k" * 32), "in_b")
        plain, audited = CallQueue(), CallQueue()
        plain.use("off")
        audited.use("off", is_audited=True)
        observed, seconds = trail.observing(audited.ended), 0.0
        trail.claim()
        for _ in range(_ROUNDS):
            began = time.process_time()
            for record in records:
                plain.ended(record, Outcome.OK, 1.0)
            between = time.process_time()
            for record in records:
                observed(record, Outcome.OK, 1.0)
            portions, dropped, _ids = audited.take()
            trail.take(portions, dropped, 0.0)
            trail._write()
            seconds += time.process_time() - between - (between - began)
        place.close(b'"time":""')
    return seconds / (_CALLS * _ROUNDS) * 1e6


if __name__ == "__main__":
    print(f"rate: {rate():.1f} µs (goal ≤ 5 µs)")
    print(f"policy: {policy():.1f} µs (goal ≤ 50 µs)")
    for rule_of_arguments in ("hash", "full", "none"):
        print(f"audit, arguments {rule_of_arguments}: {audit(rule_of_arguments):.1f} µs (goal ≤ 20 µs)")
