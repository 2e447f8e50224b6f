"""The answer to a hello, by the builds of both, whether the hub is busy, and what the client asks for."""

import pytest

from mcp_hub.app.attached.clients import Hello, answer
from mcp_hub.attach.hello import NEWEST, OLDEST, decoded, encoded, is_whole
from mcp_hub.config.schema.settings import Settings

SETTINGS = Settings.model_validate({"servers": {"a": {"command": "x"}}, "profiles": {"dev": {"servers": ["a"]}}})
FIELDS = {"build": "1.0", "oldest": str(OLDEST), "newest": str(NEWEST), "cwd": "/home/ann", "pid": "7"}


@pytest.mark.parametrize(
    ("hub", "is_idle", "more", "status"),
    [
        ("1.0", False, {}, "ok"),
        ("0.9", True, {}, "retire"),
        ("0.9", False, {}, "busy"),
        ("0.9", True, {"final": "1"}, "ok"),
        ("2.0", False, {}, "ok"),
        ("1.0", True, {"oldest": str(NEWEST + 1), "newest": str(NEWEST + 1)}, "refused"),
        ("0.9", True, {"oldest": str(NEWEST + 1), "newest": str(NEWEST + 1)}, "retire"),
        ("1.0", True, {"profile": "dev"}, "ok"),
        ("1.0", True, {"profile": "none"}, "refused"),
        ("1.0", True, {"client": "claude-code"}, "ok"),
        ("1.0", True, {"client": "no-such-client"}, "refused"),
    ],
)
def test_the_answer_follows_from_builds_and_wishes(hub: str, is_idle: bool, more: dict[str, str], status: str) -> None:
    reply = answer(Hello.of({**FIELDS, **more}), hub, SETTINGS, clients=1, is_idle=is_idle)
    assert reply["status"] == status
    assert ("why" in reply) == (status in ("busy", "refused"))
    assert reply.get("build") == (hub if status in ("busy", "ok") else None), "a busy hub that is older says so"


def test_a_hub_takes_a_bounded_number_of_clients() -> None:
    replies = [answer(Hello.of(FIELDS), "1.0", SETTINGS, clients=n, is_idle=False) for n in (255, 256)]
    assert [reply["status"] for reply in replies] == ["ok", "busy"] and "build" not in replies[1]


def test_a_hello_names_the_streams_of_open_requests() -> None:
    hello = Hello.of({**FIELDS, "streams": '3 st_A\n"x y" st_B'})
    assert hello.streams == {3: "st_A", "x y": "st_B"}
    assert hello.caller.directory == "/home/ann"


def test_fields_come_through_whole_and_what_follows_is_kept() -> None:
    fields = {"cwd": "/a=b\nc", "client": "é\udcff", "empty": ""}
    message = encoded(fields)
    for cut in range(len(message)):
        assert not is_whole(message[:cut])
    assert decoded(message + b"{}\n") == (fields, b"{}\n")


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b'{"jsonrpc"', b"mcp-hub attach\0" + b"x" * (1 << 17)])
def test_anything_else_is_not_a_hello(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a hello"):
        is_whole(data)
