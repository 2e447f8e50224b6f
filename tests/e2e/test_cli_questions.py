"""Questions of a tool that a person answers at a terminal, of a running hub and of one of the command's own."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.terminal import Terminal, terminal
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import SECONDS
from tests.upstreams.launch import entry

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "age": {"type": "integer", "default": 30},
        "share": {"type": "number", "maximum": 1},
        "color": {"type": "string", "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
        "level": {"type": "string", "enum": ["low", "high"], "enumNames": ["Low", "High"]},
        "parts": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}},
        "sure": {"type": "boolean"},
        "mail": {"type": "string", "format": "email"},
    },
    "required": ["name", "color"],
}


class Place:
    """A hub, and terminals with its configuration and state."""

    def __init__(self, hub: Hub, root: Path) -> None:
        self.hub, self.root = hub, root

    def terminal(self, where: str, *args: str) -> AbstractContextManager[Terminal]:
        more = {"running": ["--url", self.hub.url], "own": ["--local"]}[where]
        return terminal(self.root, *args, *more)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    root = tmp_path_factory.mktemp("questions")
    servers = {"fix": entry(journal=root / "journal")}
    async with http_hub(json.dumps({"servers": servers, "hub": {"first_list_wait": "20s"}}), root) as hub:
        yield Place(hub, root)


async def typed(work: Callable[[], str]) -> str:
    """What a terminal shows in the end; the hub is not kept waiting for the person."""
    with anyio.fail_after(3 * SECONDS):
        return await anyio.to_thread.run_sync(work)


def answers(shown: str) -> dict[str, Any]:
    """What the tool says that it was answered."""
    line = shown[shown.rindex('{"nonce"') :].splitlines()[0]
    return {key: own["result"] for key, own in json.loads(line)["answers"].items()}


WHERE = pytest.mark.parametrize("where", ["running", "own"])


@WHERE
async def test_form_is_filled_in_at_the_terminal(place: Place, where: str) -> None:
    def work() -> str:
        given = json.dumps({"schema": SCHEMA, "message": "Hello\n\x1b]0;evil\x07"})
        with place.terminal(where, "call", "fix_ask_form", "--args-json", given) as person:
            person.until("fix_ask_form asks")
            person.answer("Your name: ", "A")
            person.until("at least 2 characters.")
            person.answer("Your name: ", "Änn")
            person.answer("age [30]: ", "")
            person.answer("share: ", "0.5")
            person.answer("color: ", "2")
            person.answer("level: ", "high")
            person.answer("parts: ", "1, c")
            person.answer("sure: ", "y")
            person.answer("mail: ", "")
            person.answer("ecline: ", "")
            assert person.end() == 0
            return person.text

    shown = await typed(work)
    assert "│ \\x1b]0;evil\\x07" in shown and "\x1b]0;" not in shown
    content = {
        "name": "Änn",
        "age": 30,
        "share": 0.5,
        "color": "#0f0",
        "level": "high",
        "parts": ["a", "c"],
        "sure": True,
    }
    assert answers(shown) == {"form": {"action": "accept", "content": content}}


@WHERE
async def test_url_is_shown_and_agreed_to_or_declined(place: Place, where: str) -> None:
    def work(answer: str) -> str:
        with place.terminal(where, "call", "fix_ask_url", "url=https://example.org/\u202elogin") as person:
            person.until("URL:  https://example.org/%E2%80%AElogin")
            person.until("Host: example.org")
            person.answer("ecline: ", answer)
            assert person.end() == 0
            return person.text

    assert answers(await typed(lambda: work("y"))) == {"url": {"action": "accept"}}
    assert answers(await typed(lambda: work("d"))) == {"url": {"action": "decline"}}


async def test_page_that_a_call_requires_is_shown_with_the_error(place: Place) -> None:
    pages = {"elicitations": [{"mode": "url", "message": "m", "url": "https://example.org/\u202elogin"}]}
    given = json.dumps({"code": -32042, "message": "first a page", "data": pages})

    def work() -> str:
        with place.terminal("own", "call", "fix_error", "--args-json", given) as person:
            person.until("-32042")
            person.until("URL:  https://example.org/%E2%80%AElogin")
            person.until("Host: example.org")
            assert person.end() == 1
            return person.text

    await typed(work)


@WHERE
async def test_two_questions_at_once_are_asked_one_after_the_other(place: Place, where: str) -> None:
    def work() -> str:
        with place.terminal(where, "call", "fix_ask_both") as person:
            for text in ("1", "2"):
                person.answer("answer: ", text)
                person.answer("ecline: ", "y")
            assert person.end() == 0
            return person.text

    found = answers(await typed(work))
    assert {key: own["content"]["answer"] for key, own in found.items()} == {"first": "1", "second": "2"}


async def test_ctrl_d_declines_and_sampling_is_refused_with_the_reason(place: Place) -> None:
    def work() -> str:
        with place.terminal("running", "call", "fix_ask_form") as person:
            person.until("answer: ")
            person.type("\x04")
            assert person.end() == 0
            return person.text

    assert answers(await typed(work)) == {"form": {"action": "decline"}}

    def sample() -> str:
        with place.terminal("running", "call", "fix_ask_sampling") as person:
            assert person.end() == 0
            return person.text

    assert "sampling/createMessage (the command does not have a model to sample)" in await typed(sample)


@WHERE
async def test_ctrl_c_at_a_question_cancels_the_call(place: Place, where: str) -> None:
    def work() -> str:
        with place.terminal(where, "call", "fix_ask_form", f"nonce={where}") as person:
            person.until("answer: ")
            person.type("\x03")
            assert person.end() == 130
            return person.text

    found = re.search(r"\r\n(?:\x1b\[2m)?cancelled \(stream (st_\w+)\)", await typed(work))
    assert found is not None
    if where == "running":
        async with RestClient(place.hub) as client:
            assert (await client.until(found[1], "cancelled"))["name"] == "fix_ask_form"


async def test_question_that_is_answered_elsewhere_is_taken_away(place: Place) -> None:
    entered = anyio.Event()

    def work() -> str:
        with place.terminal("running", "call", "fix_ask_form", "nonce=elsewhere") as person:
            person.until("answer: ")
            anyio.from_thread.run_sync(entered.set)
            assert person.end() == 0
            return person.text

    async with RestClient(place.hub) as client, anyio.create_task_group() as tasks:

        async def answer() -> None:
            await entered.wait()
            streams = (await client.ask("GET", "/streams")).json()["streams"]
            [stream] = [own["stream"] for own in streams if own["status"] == "input_required"]
            [asked] = (await client.ask("GET", f"/streams/{stream}")).json()["questions"]
            body = {"key": asked["key"], "action": "accept", "content": {"answer": "there"}}
            assert (await client.ask("POST", f"/streams/{stream}/input", body)).status_code == 202

        tasks.start_soon(answer)
        shown = await typed(work)
    assert "The question is not open any more." in shown
    assert answers(shown) == {"form": {"action": "accept", "content": {"answer": "there"}}}


async def test_question_of_a_detached_call_is_answered_by_resume(place: Place) -> None:
    async with RestClient(place.hub) as client:
        stream = await client.started("fix_ask_form", {"nonce": "later"})

    def work() -> str:
        with place.terminal("running", "resume", stream) as person:
            person.answer("answer: ", "now")
            person.answer("ecline: ", "y")
            assert person.end() == 0
            return person.text

    assert answers(await typed(work)) == {"form": {"action": "accept", "content": {"answer": "now"}}}
    shown = await typed(lambda: _resumed(place, stream))
    assert "answer: " not in shown  # it is not asked again
    line = [*forked_command(), "resume", stream, "--json", "--url", place.hub.url]
    said = (await anyio.run_process(line)).stderr
    assert b"is not open any more." in said and b"waits for an answer" not in said


def _resumed(place: Place, stream: str) -> str:
    with place.terminal("running", "resume", stream) as person:
        assert person.end() == 0
        return person.text
