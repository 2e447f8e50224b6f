"""How tests start the fixture server and read what arrived there."""

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("main.py")
FIRST_LIST = "120s"
"""How long a first list waits for its servers unless a test is about that: on a busy machine they start slowly."""


def argv(*options: str, **named: Any) -> list[str]:
    """The command line of one fixture server: `argv("--page-loop", name="a", era="modern", tools_json=path)`."""
    flags = [part for key, value in named.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    return [sys.executable, str(SERVER), *flags, *options]


def free_port() -> int:
    """A port of 127.0.0.1 for what has to come back on the same one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def entry(*options: str, **named: Any) -> dict[str, Any]:
    """The entry of one fixture server in `servers`: as for `argv`."""
    command, *args = argv(*options, **named)
    return {"command": command, "args": args}


def servers_yaml(servers: Mapping[str, list[str] | str], **settings: Any) -> str:
    """A `servers.yaml` that runs these command lines, or uses these URLs, under these names (JSON, which is YAML).

    `patient`, as for all hubs of the tests.
    """
    entries = {
        name: {"url": how} if isinstance(how, str) else {"command": how[0], "args": how[1:]}
        for name, how in servers.items()
    }
    return json.dumps(patient({"servers": entries, **settings}), indent=2)


def patient(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a hub whose first list waits for `FIRST_LIST`, unless they say how long it waits."""
    return {**settings, "hub": {"first_list_wait": FIRST_LIST, **(settings.get("hub") or {})}}


def journal(path: Path) -> list[dict[str, Any]]:
    """Every record of a `--journal` file so far, oldest first; `[]` before the server has started."""
    if not path.exists():
        return []
    complete = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in complete.split(b"\n") if line]


def received(path: Path, method: str | None = None) -> list[dict[str, Any]]:
    """The messages that arrived, of all processes that share the journal; only those of `method` if it is given."""
    messages = [record["received"] for record in journal(path) if "received" in record]
    return [m for m in messages if method is None or m.get("method") == method]


def starts(path: Path) -> int:
    """How many processes of a server of one era have served its clients: all but the one that found out that era."""
    started = events(path, "start")
    return len(started) - ("modern" in started[0]["argv"])


def events(path: Path, name: str) -> list[dict[str, Any]]:
    """Journal events by name.

    `start`, `eof`, `cancelled` (a call or a task), `listening`, `unlistened`, `subscribed`, `unsubscribed`, `answered`
    (a question outside of a call), `stray` (an answer nobody waits for), `http` (verb, path, headers of a request).
    """
    return [record for record in journal(path) if record.get("event") == name]
