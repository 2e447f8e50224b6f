"""Decides about a hello: accept, retire for a newer build, or refuse. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.attach.build import NEWEST, OLDEST, is_newer
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.protocol.jsonrpc.envelope import id_key
from mcp_hub.sessions.session import Caller

MOST_CLIENTS: Final = 256
"""Clients of one hub; further ones get their own."""
_MOST_STREAMS: Final = 1024


class Hello(msgspec.Struct, frozen=True):
    """A client's introduction. `streams`: its open requests' streams, by request id. `path`: its search path."""

    build: str
    protocol: tuple[int, int]
    caller: Caller
    pid: int = 0
    is_final: bool = False
    streams: dict[int | str, str] = {}
    path: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "Hello":
        """Raises `ValueError` for invalid fields."""
        caller = Caller(
            profile=fields.get("profile"),
            has_own_hub=True,  # as over stdio: whoever is at the other end is a client of a person, not a program
            client=fields.get("client"),
            directory=fields.get("cwd") or "/",
        )
        streams: dict[int | str, str] = {}
        for line in fields.get("streams", "").splitlines()[:_MOST_STREAMS]:
            raw_id, _, stream = line.rpartition(" ")
            streams[id_key(raw_id.encode())] = stream
        protocol = int(fields["oldest"]), int(fields["newest"])
        final, pid = fields.get("final") == "1", int(fields.get("pid", "0"))
        return cls(
            build=fields["build"],
            protocol=protocol,
            caller=caller,
            pid=pid,
            is_final=final,
            streams=streams,
            path=fields.get("path", ""),
        )


def answer(hello: Hello, build: str, settings: Settings, *, clients: int, is_idle: bool) -> dict[str, str]:
    """The answer's fields; `status` is `ok`, `retire`, `busy` or `refused`.

    A busy, older hub adds its `build`, so that newer clients share another hub.
    """
    oldest, newest = hello.protocol
    is_apart = newest < OLDEST or oldest > NEWEST
    if is_newer(hello.build, build) and not hello.is_final:
        if is_idle:
            return {"status": "retire"}
        message = f"clients still use the background hub of version {build}, which is older than this program "
        message += f"({hello.build}). Restart these clients, or run mcp-hub stop"
        return {"status": "busy", "why": message, "build": build}
    if clients >= MOST_CLIENTS:
        return {"status": "busy", "why": f"the background hub has {clients} clients already"}
    if is_apart:
        return {"status": "refused", "why": f"the background hub ({build}) speaks another version of the protocol"}
    caller = hello.caller
    if caller.profile is not None and caller.profile not in settings.profiles:
        return {"status": "refused", "why": f'the background hub has no profile "{caller.profile}"'}
    try:
        if caller.client is not None:
            settings.client_table.require(caller.client)
    except ConfigError:
        return {"status": "refused", "why": f'the background hub has no kind of client "{caller.client}"'}
    return {"status": "ok", "build": build, "resumes": "1"}
