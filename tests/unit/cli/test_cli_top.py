"""`mcp-hub top` on a terminal of the tests, before a hub in this process."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, DataTable, RichLog, Static

from mcp_hub.cli import main
from mcp_hub.cli.commands.running import operate
from mcp_hub.cli.top import TopApp, call_row, needs, server_row
from mcp_hub.client.hub_client import HubClient, HubFeed
from mcp_hub.client.in_process import AsgiTransport
from mcp_hub.client.rest import Answer
from mcp_hub.errors import ConfigError
from mcp_hub.protocol.eras import LATEST_HANDSHAKE
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.protocol.rest.servers import SandboxInfo, ServerInfo
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era
from tests.unit.cli.command import command_env
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.upstreams.child import until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGE = "http://localhost/"


class Operated(AsgiTransport):
    """Sends the token of the page."""

    def __init__(self, peer: DashboardPeer, token: str) -> None:
        super().__init__(peer.front.endpoints)
        self._token = token

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        more = {"host": "localhost", "authorization": f"Bearer {self._token}"}
        return await super().send(method, url, {**headers, **more}, body)


def app(transport: Operated) -> TopApp:
    return TopApp(HubFeed(PAGE, transport), HubClient(f"{PAGE}api/mcp", transport))


@asynccontextmanager
async def shown(peer: DashboardPeer) -> AsyncIterator[Pilot[ConfigError | None]]:
    transport = Operated(peer, peer.front.operator)
    async with transport, app(transport).run_test(size=(120, 40)) as pilot:
        yield pilot


def texts(pilot: Pilot[ConfigError | None], table: str) -> list[list[str]]:
    found = pilot.app.query_one(f"#{table}", DataTable)
    return [[str(cell) for cell in found.get_row_at(row)] for row in range(found.row_count)]


def lines(pilot: Pilot[ConfigError | None]) -> str:
    return "\n".join(strip.text for strip in pilot.app.query_one(RichLog).lines)


async def test_a_call_is_found_followed_and_cancelled(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, servers={"bad": {"command": "no-such"}}) as peer, shown(peer) as pilot:
        await until(lambda: [row[:2] for row in texts(pilot, "servers")] == [["local", "ready"], ["bad", "failed"]])
        assert "no-such" in str(pilot.app.query_one("#needs", Static).render())
        stream = (await peer.page("POST", "/v1/tools/steps/call", {"arguments": {"n": 2}}, headers={"prefer": "wait=0"})
                  .ended()).json["stream"]  # fmt: skip
        await pilot.press("c")
        await until(lambda: any(row[3] == "steps" and "50 % step 1" in row[4] for row in texts(pilot, "calls")))
        await pilot.press("enter")
        assert pilot.app.query_one(ContentSwitcher).current == "stream"
        await until(lambda: "part 1" in lines(pilot) and "1 of 2" in lines(pilot))
        assert stream in str(pilot.app.query_one("#call", Static).render())
        await pilot.press("x")
        assert "cancelled" not in lines(pilot), "one key is not enough"
        await pilot.press("x")
        await until(lambda: "cancelled" in lines(pilot))
        for view in ("calls", "overview", "overview"):
            await pilot.press("escape")
            assert pilot.app.query_one(ContentSwitcher).current == view and pilot.app.is_running


async def test_the_cursor_stays_on_its_call_when_others_come(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path) as peer, shown(peer) as pilot:
        table = pilot.app.query_one("#calls", DataTable)

        def has(count: int) -> Callable[[], bool]:
            return lambda: table.row_count == count

        for text in "ab":
            await peer.post("/v1/tools/echo/call", {"arguments": {"text": text}})
        await until(has(2))
        await pilot.press("c", "j")
        chosen = list(table.rows)[table.cursor_row]
        await peer.post("/v1/tools/echo/call", {"arguments": {"text": "c"}})
        await until(has(3))
        assert list(table.rows)[table.cursor_row] == chosen and table.cursor_row == 2


async def test_a_token_that_the_hub_refuses_ends_it_with_the_reason(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path) as peer, Operated(peer, "wrong") as transport:
        one = app(transport)
        async with one.run_test():
            await until(lambda: one.return_value is not None)
        assert "needs a token" in str(one.return_value)


def test_rows_are_neither_markup_nor_obeyed_and_a_waiting_call_says_for_which() -> None:
    evil = ServerInfo("[red]x", "failed", 0, reason="a\x1b[2J\nb" + "c" * 1000)
    row = server_row(evil)
    assert all(isinstance(cell, Text) for cell in row) and str(row[0]) == "[red]x"
    assert str(row[4]).startswith("a\\x1b[2J bccc") and len(str(row[4])) == 160
    assert "\x1b" not in str(next(needs([evil], [])))
    boxed = ServerInfo("a", "ready", 0, sandbox=SandboxInfo("on", "hosts", 2))
    assert str(server_row(boxed)[4]) == "its sandbox refused 2 attempts: mcp-hub sandbox a"
    about = {"message": "said before", "waits_for": "helpdesk_ask of Cur\x1bsor", "waits_since": 88.0}
    call = CallSummary("st_1", "helpdesk", "b", "tools/call", "local", "waiting", 90.0, 0.0, **about)  # type: ignore[arg-type]
    cells = [str(cell) for cell in call_row(call, 100.0)]
    assert (cells[1], cells[4]) == ("waiting", "waits for helpdesk_ask of Cur\\x1bsor, 12 s")


@pytest.mark.parametrize(
    ("arguments", "has", "code"),
    [([], True, "no_running_hub"), ([], False, "no_textual"), (["--url", "http://127.0.0.1:1"], True, "no_display")],
)
def test_where_it_cannot_run_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], has: bool, code: str
) -> None:
    (tmp_path / "servers.yaml").write_text(json.dumps({"servers": {}}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(operate, "find_spec", lambda name: object() if has else None)
    done = CliRunner().invoke(main, ["top", *arguments], env=command_env(tmp_path))
    assert done.exit_code in (2, 3) and f"[{code}]" in done.output


@pytest.mark.parametrize(("text", "said"), [("Which?", 'ask asks: "Which?". '), ("", "ask asks 1 question. ")])
def test_a_question_is_shown_with_the_command_that_answers_it(text: str, said: str) -> None:
    call = CallSummary("st_1", "a", "ask", "tools/call", "p", "input_required", 0, 0, questions=1, question=text)
    assert [line.plain for line in needs([], [call])] == [f"{said}Answer: mcp-hub resume st_1"]


async def test_clients_of_a_hub_over_http_are_listed_to_its_operator_alone(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True, is_local=False) as peer:
        about = {"name": "Zed", "version": "3"}
        peer.app.seen.clients(Session("s", Caller("alice"), Era.HANDSHAKE, LATEST_HANDSHAKE, client_info=about))
        for token, names in ((peer.front.operator, ["Zed"]), ("wrong" * 8, [])):
            async with HubClient(f"{PAGE}mcp", Operated(peer, token)) as client:
                assert [own.name for own in await client.lists.clients()] == names
