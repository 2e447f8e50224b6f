"""Questions of a tool that a person answers at a terminal, of a running hub and of one of the command's own."""

import json
import re
from collections.abc import AsyncIterator, Sequence
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


Lines = Sequence[tuple[str, str]]
"""What a person types, each behind the text that is waited for."""


class Place:
    """A hub, and terminals with its configuration and state."""

    def __init__(self, hub: Hub, root: Path) -> None:
        self.hub, self.root = hub, root

    def terminal(self, where: str, *args: str) -> AbstractContextManager[Terminal]:
        more = {"running": ["--url", self.hub.url], "own": ["--local"]}[where]
        return terminal(self.root, *args, *more)

    async def typed(
        self, where: str, *args: str, lines: Lines = (), code: int = 0, entered: anyio.Event | None = None
    ) -> str:
        """What a terminal shows in the end; the hub is not kept waiting. `entered` is set once all is typed."""

        def work() -> str:
            with self.terminal(where, *args) as person:
                for prompt, text in lines:
                    person.until(prompt)
                    person.type(text)
                if entered is not None:
                    anyio.from_thread.run_sync(entered.set)
                assert person.end() == code
                return person.text

        with anyio.fail_after(3 * SECONDS):
            return await anyio.to_thread.run_sync(work)


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    root = tmp_path_factory.mktemp("questions")
    servers = {"fix": entry(journal=root / "journal")}
    async with http_hub(json.dumps({"servers": servers}), root) as hub:
        yield Place(hub, root)


def answers(shown: str) -> dict[str, Any]:
    """What the tool says that it was answered."""
    line = shown[shown.rindex('{"nonce"') :].splitlines()[0]
    return {key: own["result"] for key, own in json.loads(line)["answers"].items()}


WHERE = pytest.mark.parametrize("where", ["running", "own"])
OWN_FIRST = pytest.mark.parametrize("where", ["own", "running"])


@pytest.mark.first(1)
@WHERE
async def test_form_is_filled_in_at_the_terminal(place: Place, where: str) -> None:
    given = json.dumps({"schema": SCHEMA, "message": "Hello\n\x1b]0;evil\x07"})
    lines = [
        *(("fix_ask_form asks", ""), ("Your name: ", "A\n"), ("at least 2 characters.", ""), ("Your name: ", "Änn\n")),
        *(("age [30]: ", "\n"), ("share: ", "0.5\n"), ("color: ", "2\n"), ("level: ", "high\n")),
        *(("parts: ", "1, c\n"), ("sure: ", "y\n"), ("mail: ", "\n"), ("ecline: ", "\n")),
    ]
    shown = await place.typed(where, "call", "fix_ask_form", "--args-json", given, lines=lines)
    assert "│ \\x1b]0;evil\\x07" in shown and "\x1b]0;" not in shown
    content = {"name": "Änn", "age": 30, "share": 0.5, "color": "#0f0", "level": "high", "parts": ["a", "c"]}
    assert answers(shown) == {"form": {"action": "accept", "content": {**content, "sure": True}}}


PAGE = "https://example.org/\u202elogin"
SHOWN = (("URL:  https://example.org/%E2%80%AElogin", ""), ("Host: example.org", ""))


@pytest.mark.first(1)
@OWN_FIRST
async def test_url_is_shown_and_agreed_to_or_declined(place: Place, where: str) -> None:
    for answer, action in (("y", "accept"), ("d", "decline")):
        lines = (*SHOWN, ("ecline: ", f"{answer}\n"))
        shown = await place.typed(where, "call", "fix_ask_url", f"url={PAGE}", lines=lines)
        assert answers(shown) == {"url": {"action": action}}


async def test_page_that_a_call_requires_is_shown_with_the_error(place: Place) -> None:
    pages = {"elicitations": [{"mode": "url", "message": "m", "url": PAGE}]}
    given = json.dumps({"code": -32042, "message": "first a page", "data": pages})
    await place.typed("own", "call", "fix_error", "--args-json", given, lines=(("-32042", ""), *SHOWN), code=1)


@pytest.mark.first(1)
@WHERE
async def test_two_questions_at_once_are_asked_one_after_the_other(place: Place, where: str) -> None:
    lines = [("answer: ", "1\n"), ("ecline: ", "y\n"), ("answer: ", "2\n"), ("ecline: ", "y\n")]
    found = answers(await place.typed(where, "call", "fix_ask_both", lines=lines))
    assert {key: own["content"]["answer"] for key, own in found.items()} == {"first": "1", "second": "2"}


async def test_ctrl_d_declines_and_sampling_is_refused_with_the_reason(place: Place) -> None:
    shown = await place.typed("running", "call", "fix_ask_form", lines=[("answer: ", "\x04")])
    assert answers(shown) == {"form": {"action": "decline"}}
    said = "sampling/createMessage (the command does not have a model to sample)"
    assert said in await place.typed("running", "call", "fix_ask_sampling")


@pytest.mark.first(1)
@OWN_FIRST
async def test_ctrl_c_at_a_question_cancels_the_call(place: Place, where: str) -> None:
    question = [("answer: ", "\x03")]
    shown = await place.typed(where, "call", "fix_ask_form", f"nonce={where}", lines=question, code=130)
    found = re.search(r"\r\n(?:\x1b\[2m)?cancelled \(stream (st_\w+)\)", shown)
    assert found is not None
    if where == "running":
        async with RestClient(place.hub) as client:
            assert (await client.until(found[1], "cancelled"))["name"] == "fix_ask_form"


async def test_question_that_is_answered_elsewhere_is_taken_away(place: Place) -> None:
    entered = anyio.Event()
    async with RestClient(place.hub) as client, anyio.create_task_group() as tasks:

        async def answer() -> None:
            await entered.wait()
            streams = (await client.ask("GET", "/streams")).json()["streams"]
            [stream] = [own["stream"] for own in streams if own["status"] == "input_required"]
            [asked] = (await client.ask("GET", f"/streams/{stream}")).json()["questions"]
            body = {"key": asked["key"], "action": "accept", "content": {"answer": "there"}}
            assert (await client.ask("POST", f"/streams/{stream}/input", body)).status_code == 202

        tasks.start_soon(answer)
        call = ("call", "fix_ask_form", "nonce=elsewhere")
        shown = await place.typed("running", *call, lines=[("answer: ", "")], entered=entered)
    assert "The question is not open any more." in shown
    assert answers(shown) == {"form": {"action": "accept", "content": {"answer": "there"}}}


async def test_question_of_a_detached_call_is_answered_by_resume(place: Place) -> None:
    async with RestClient(place.hub) as client:
        stream = await client.started("fix_ask_form", {"nonce": "later"})
    shown = await place.typed("running", "resume", stream, lines=[("answer: ", "now\n"), ("ecline: ", "y\n")])
    assert answers(shown) == {"form": {"action": "accept", "content": {"answer": "now"}}}
    assert "answer: " not in await place.typed("running", "resume", stream), "it is not asked again"
    line = [*forked_command(), "resume", stream, "--json", "--url", place.hub.url]
    said = (await anyio.run_process(line)).stderr
    assert b"is not open any more." in said and b"waits for an answer" not in said
