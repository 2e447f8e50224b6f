"""What a client and the hub send each other, line by line, as it was recorded in a file of JSON lines.

Every line of either side is kept as it was sent. Only what differs from run to run has a placeholder: versions of
programs, UUIDs, times, the id of a task, and the folder of the run. The first line of the file says which client was
run, and how.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.types import JsonObject
from rigs.clients.install import ROOT

FOLDER: Final = ROOT / "tests" / "e2e" / "transcripts"
TASK: Final = "st_TASK"
"""The placeholder for the id of a task, of which a transcript has one at most."""
_CHANGING: Final = (
    (re.compile(r'("version":\s*)"[^"]*"'), r'\1"VERSION"'),
    (re.compile(r"\bst_[0-9A-Z]{26}\b"), TASK),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
)


class Sent(msgspec.Struct, frozen=True, omit_defaults=True, rename={"side": "from"}):
    """One line over a pipe, or one request or answer over HTTP, from the `client` or the `hub`.

    Those of the `rig` say what it did meanwhile, such as quitting the client.
    """

    side: str
    request: str = ""
    """Over HTTP: `POST /mcp`."""
    headers: Mapping[str, str] = {}
    """Of a request over HTTP: those of MCP, and `accept` and `content-type`."""
    status: int = 0
    """Of an answer over HTTP."""
    line: str = ""
    """A JSON-RPC message, or the body."""


class Transcript(msgspec.Struct, frozen=True):
    """A conversation: the client with its version, how it was run, and what was sent."""

    client: str
    run: str
    sent: Sequence[Sent] = ()

    @property
    def is_http(self) -> bool:
        return any(one.request for one in self.sent)


def read(path: Path) -> Transcript:
    """The transcript in a file."""
    head, *lines = path.read_bytes().splitlines()
    about = msgspec.json.decode(head, type=Transcript)
    return msgspec.structs.replace(about, sent=[msgspec.json.decode(line, type=Sent) for line in lines])


def write(path: Path, transcript: Transcript) -> None:
    """Replaces the file."""
    head = {"client": transcript.client, "run": transcript.run}
    path.write_bytes(b"\n".join(map(msgspec.json.encode, (head, *transcript.sent))) + b"\n")


def steady(sent: Iterable[Sent], folder: Path) -> list[Sent]:
    """The same with placeholders for what differs from run to run."""
    return [_steady_sent(one, str(folder)) for one in sent]


def _steady_sent(sent: Sent, folder: str) -> Sent:
    headers = {name: _steady(value, folder) for name, value in sent.headers.items()}
    return msgspec.structs.replace(sent, headers=headers, line=_steady(sent.line, folder))


def _steady(text: str, folder: str) -> str:
    text = text.replace(folder, "HOME")
    for pattern, placeholder in _CHANGING:
        text = pattern.sub(placeholder, text)
    return text


def messages(text: str) -> list[JsonObject]:
    """The JSON-RPC message of a line or of a body, if it has one."""
    return [json.loads(text)] if text.startswith("{") else []


def shapes(sent: Sequence[Sent]) -> list[str]:
    """What the hub sent, without contents and order: answers by the methods that were asked, notifications by theirs.

    Of a result the members count, and the values of those that name an era; of a body without a message, its status.
    """
    methods: dict[str, str] = {}
    found = [f"status {one.status}" for one in sent if one.side == "hub" and one.status not in (0, 200)]
    for one in sent:
        for message in messages(one.line):
            if one.side == "hub":
                found.append(_shape(message, methods))
            elif one.side == "client" and "id" in message:  # which a client uses again once it has begun anew
                methods[repr(message["id"])] = message["method"]
    return sorted(found)


def asked(sent: Sequence[Sent]) -> list[str]:
    """What the client sent: the methods, and the paths of requests without a message. Some clients vary the order."""
    bare = [one.request for one in sent if one.request and not messages(one.line)]
    return sorted([*(str(message.get("method", "an answer")) for message in _of("client", sent)), *bare])


def steps(sent: Sequence[Sent]) -> list[tuple[str, list[str], list[str]]]:
    """What the rig did; after each of it the methods that the client sent, and the statuses of its task, once each."""
    found: list[tuple[str, list[str], list[str]]] = []
    for one in sent:
        if one.side == "rig":
            found.append((one.line, [], []))
            continue
        (message,) = messages(one.line) or [{}]
        is_client = one.side == "client"
        word = str(message.get("method", "") if is_client else message.get("result", {}).get("status", ""))
        _, methods, statuses = found[-1]
        seen = methods if is_client else statuses
        if word and word not in seen:
            seen.append(word)
    return [(line, sorted(methods), statuses) for line, methods, statuses in found]


def errors(sent: Sequence[Sent]) -> list[JsonObject]:
    """The errors by which the hub answered a message."""
    return [answer for answer in _of("hub", sent) if "error" in answer and answer["id"] is not None]


def _of(side: str, sent: Sequence[Sent]) -> Iterator[JsonObject]:
    for one in sent:
        if one.side == side:
            yield from messages(one.line)


def _shape(message: JsonObject, methods: Mapping[str, str]) -> str:
    if "method" in message:
        return str(message["method"])
    method = methods.get(repr(message["id"]), "nothing")
    if "error" in message:
        return f"{method}: error {message['error']['code']}"
    result = message["result"]
    eras = {name: result[name] for name in ("resultType", "protocolVersion", "supportedVersions") if name in result}
    return f"{method}: {sorted(result)} {eras}"
