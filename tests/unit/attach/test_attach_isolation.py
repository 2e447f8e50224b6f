"""Which servers have a process for each client of a background hub, unless the configuration says otherwise."""

import pytest

from mcp_hub.app.attached.isolation import default_scope, is_to_separate
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.types import UpstreamState, UpstreamStatus


@pytest.mark.parametrize(
    ("command", "args", "isolated"),
    [
        ("npx", ["@playwright/mcp@latest"], True),
        ("npx", ["-y", "chrome-devtools-mcp@latest"], True),
        ("npx", ["-y", "@modelcontextprotocol/server-puppeteer"], True),
        ("uvx", ["--from", "git+https://x/serena", "serena", "start-mcp-server"], True),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "."], True),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "../docs"], True),
        ("server", ["--root=./data"], True),
        ("npx", ["-y", "@modelcontextprotocol/server-filesystem", "/home/ann/docs"], False),
        ("uvx", ["mcp-server-time"], False),
        ("uvx", ["mcp-server-git"], False),
        ("./server", [], False),
        ("server", ["--version=1.2", "..."], False),
    ],
)
def test_browsers_and_servers_of_a_working_directory_are_isolated(
    command: str, args: list[str], isolated: bool
) -> None:
    server = ServerSettings.model_validate({"command": command, "args": args})
    assert default_scope(server, asks=False) == ("session" if isolated else None)


def test_a_server_with_a_working_directory_of_its_own_is_shared() -> None:
    assert (
        default_scope(ServerSettings.model_validate({"command": "x", "args": ["."], "cwd": "/srv"}), asks=False) is None
    )
    assert default_scope(ServerSettings.model_validate({"url": "https://playwright.example"}), asks=True) is None


@pytest.mark.parametrize(("era", "scope"), [("follow", "session"), ("handshake", "session"), ("modern", None)])
def test_a_server_that_asks_its_callers_is_isolated_where_it_does_not_say_whom(era: str, scope: str | None) -> None:
    assert default_scope(ServerSettings.model_validate({"command": "x", "era": era}), asks=True) == scope


@pytest.mark.parametrize(
    ("server", "asks", "scope", "separated"),
    [
        ({"command": "x"}, True, "", True),
        ({"command": "x"}, False, "", False),
        ({"command": "x"}, True, "session", False),
        ({"command": "x", "scope": "shared"}, True, "", False),
        ({"command": "x", "era": "modern"}, True, "", False),
        ({"url": "https://x.example"}, True, "", False),
    ],
    ids=["asked", "silent", "separated before", "shared on purpose", "modern", "remote"],
)
def test_a_shared_server_is_separated_once_it_has_asked(
    server: dict[str, str], asks: bool, scope: str, separated: bool
) -> None:
    status = UpstreamStatus("x", UpstreamState.READY, asks=asks, scope=scope)
    assert is_to_separate(status, ServerSettings.model_validate(server)) is separated
