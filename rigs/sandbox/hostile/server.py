"""A hostile MCP server over stdio with one tool, `escape`: it tries the way out that the call names, in a process
of its own, since a filter may end that. Only the standard library: it runs from one file.
"""

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from rigs.sandbox.hostile import files, kernel, network, passing, plants, processes, proxies, roots, unix, writes
from rigs.sandbox.hostile.calls import ESCAPES, Refused, World

MODULES = (files, kernel, network, passing, plants, processes, proxies, roots, unix, writes)
_SECONDS = 8
_TOOL = {
    "name": "escape",
    "description": "Tries to get out.",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "world": {"type": "object"}},
        "required": ["name", "world"],
    },
}


def inherited() -> list[int]:
    """Descriptors from 3 on that were there at the start, with what the interpreter itself holds left out."""
    numbers = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and not os.readlink(f"/proc/self/fd/{name}").endswith((".pyz", "/fd")):
                numbers.append(int(name))
    return numbers


def tried(name: str, world: World) -> dict[str, str]:
    """What came of one escape: `succeeded`, `refused` or `unknown`, and the details."""
    if name not in ESCAPES:
        return {"verdict": "unknown", "detail": ""}
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _report(writing, name, world)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if said:
        verdict: dict[str, str] = json.loads(said)
        return verdict
    if os.WIFSIGNALED(status):
        return {"verdict": "refused", "detail": f"ended by {signal.Signals(os.WTERMSIG(status)).name}"}
    return {"verdict": "refused", "detail": f"exit code {os.WEXITSTATUS(status)}"}


def _report(descriptor: int, name: str, world: World) -> None:
    """The life of the process that tries: it never returns."""
    signal.alarm(_SECONDS)
    try:
        verdict = {"verdict": "succeeded", "detail": ESCAPES[name](world)}
    except Refused as exc:
        verdict = {"verdict": "refused", "detail": str(exc)}
    except OSError as exc:
        verdict = {"verdict": "refused", "detail": errno.errorcode.get(exc.errno or 0, str(exc))}
    except BaseException as exc:
        verdict = {"verdict": "broken", "detail": repr(exc)[:300]}
    os.write(descriptor, json.dumps(verdict).encode())
    os._exit(0)


def answered(message: Mapping[str, Any], descriptors: list[int]) -> dict[str, Any] | None:
    """The result of a request; None for what is no request, or is not offered."""
    match message.get("method"):
        case "initialize":
            return {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        case "tools/list":
            return {"tools": [_TOOL]}
        case "tools/call":
            given = message["params"]["arguments"]
            world = {**given["world"], "descriptors": json.dumps(descriptors)}
            text = json.dumps(tried(given["name"], world))
            return {"content": [{"type": "text", "text": text}]}
        case "ping":
            return {}
        case _:
            return None


def main() -> None:
    """Answers until its input ends."""
    descriptors = inherited()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result = answered(message, descriptors)
        failure = {"error": {"code": -32601, "message": "Method not found"}}
        reply = {"jsonrpc": "2.0", "id": message["id"], **(failure if result is None else {"result": result})}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
