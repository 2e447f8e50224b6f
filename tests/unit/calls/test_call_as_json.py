"""A call as it is kept for another hub: what `Facade.call` makes comes back from JSON as it was."""

import msgspec

from mcp_hub.call import Call
from mcp_hub.types import CallId, Era


def test_a_call_survives_being_written_down() -> None:
    raw = msgspec.Raw
    call = Call(
        CallId("st_1"),
        "git",
        "tools/call",
        {"name": raw(b'"x"'), "arguments": raw(b'{"n":18446744073709551616}')},
        {"mine": raw(b"[1]")},
        "se_1",
        "alice",
        Era.MODERN,
        {"elicitation": {}},
        "2026-07-28",
        asked=raw(b'"git_x"'),
        wants_progress=True,
        log_level="info",
        input_responses={"k": raw(b"{}")},
        request_state="s",
    )
    assert msgspec.json.decode(msgspec.json.encode(call), type=Call) == call
    bare = msgspec.structs.replace(call, asked=msgspec.UNSET, input_responses=None)
    assert msgspec.json.decode(msgspec.json.encode(bare), type=Call) == bare
