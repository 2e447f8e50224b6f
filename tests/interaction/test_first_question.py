"""The first question of a server that many share, while another session's cancellation is on its way to it."""

import json
import sys
from pathlib import Path

import anyio
import pytest

from tests.e2e.answers import Answers, form
from tests.e2e.client import HttpClient
from tests.interaction.fronts import HANDSHAKE, connected, http_hub
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

SERVER = """\
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

asking, is_cancelled = None, False
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        server = {"name": "s", "version": "1"}
        send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        send(id=id, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("wait", "ask")]})
    elif method == "tools/call":
        with open(sys.argv[1], "a") as file:
            print(message["params"]["name"], file=file)
        asking = id if message["params"]["name"] == "ask" else asking
    elif method == "notifications/cancelled":
        is_cancelled = True
    elif method == "ping":
        if is_cancelled and asking is not None:
            schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
            send(id="q", method="elicitation/create", params={"message": "m", "requestedSchema": schema})
        send(id=id, result={})
    elif id == "q":
        send(id=asking, result={"content": [{"type": "text", "text": json.dumps(message.get("result", message))}]})
    elif method is not None and id is not None:
        send(id=id, error={"code": -32601, "message": "unknown"})
"""
"""Its question crosses the ping behind a cancellation."""


async def test_question_that_crosses_another_sessions_cancellation_is_asked(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "server.py").write_text(SERVER)
    server = {"command": sys.executable, "args": [str(tmp_path / "server.py"), str(calls)]}
    async with http_hub(json.dumps({"servers": {"s": server}}), tmp_path) as hub:
        answers = Answers({"elicitation/create": form(answer="mine")})
        async with connected(hub, HANDSHAKE) as one, connected(hub, HANDSHAKE, answers=answers) as two:
            wire = one.wire
            assert isinstance(wire, HttpClient)
            told: list[str] = []

            async def ask() -> None:
                told.append((await two.call("s_ask", {})).text)

            async with wire.stream(wire.message("tools/call", {"name": "s_wait", "arguments": {}}, id="c")):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(ask)
                    await until(lambda: {"wait", "ask"} == set(calls.read_text().split()))
                    await wire.notify("notifications/cancelled", {"requestId": "c"})
    assert "mine" in told[0]
