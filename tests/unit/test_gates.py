"""The order of a call's gates."""

from itertools import permutations

import anyio
import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, CallHandler
from mcp_hub.calls.gates.steps import ORDER, GateName, Gates, Step, StepMaker, guarded
from mcp_hub.events import Completed
from mcp_hub.types import CallId, Era
from tests.unit.fakes import Channel


def call_of(tool: str = "write", **members: object) -> Call:
    params = {"name": msgspec.Raw(msgspec.json.encode(tool)), "arguments": msgspec.Raw(b"{}")}
    call = Call(CallId("c1"), "server", "tools/call", params, {}, "s1", "local", Era.HANDSHAKE, {})
    return msgspec.structs.replace(call, **members)


def noting(seen: list[str], name: str) -> Step:
    async def step(call: Call, channel: CallChannel, proceed: CallHandler) -> Completed:
        seen.append(name)
        return await proceed(call, channel)

    return step


def maker_of(seen: list[str], name: str) -> StepMaker:
    return lambda server, tool, profile: noting(seen, name)


@pytest.mark.parametrize("installed", list(permutations(ORDER)))
def test_gates_stand_in_one_order_however_they_were_installed(installed: tuple[GateName, ...]) -> None:
    gates, seen = Gates(), list[str]()
    for name in installed:
        gates.install(name, maker_of(seen, name))

    async def send(call: Call, channel: CallChannel) -> Completed:
        seen.append("sent")
        return Completed(b"{}")

    anyio.run(guarded(gates.steps(call_of()), send), call_of(), Channel())
    assert seen == ["conditions", "cache", "rate", "ask", "concurrency", "sent"]


def test_a_gate_that_is_taken_away_makes_no_step() -> None:
    gates = Gates()
    gates.install("rate", lambda server, tool, profile: noting([], "rate"))
    assert len(gates.steps(call_of())) == 1
    gates.install("rate", None)
    assert gates.steps(call_of()) == ()
    assert not gates.makers


def test_a_step_is_made_once_for_each_tool_and_profile() -> None:
    gates, made = Gates(), list[tuple[str, str, str | None]]()

    def maker(server: str, tool: str, profile: str | None) -> Step | None:
        made.append((server, tool, profile))
        return None

    gates.install("conditions", maker)
    for each in (call_of(), call_of(), call_of("read"), call_of(profile="team"), call_of(method="prompts/get")):
        gates.steps(each)
    assert made == [("server", "write", None), ("server", "read", None), ("server", "write", "team")]
