"""Which servers have a process for each client of a background hub, unless the configuration says otherwise."""

import pytest

from mcp_hub.app.attached.isolation import default_scope
from mcp_hub.config.schema.servers import ServerSettings


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
