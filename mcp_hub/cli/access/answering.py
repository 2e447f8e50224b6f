"""Answers questions of a call at the terminal, or refuses them. The end of the input (Ctrl-D) declines."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import anyio
import msgspec
from msgspec import UNSET, Raw

from mcp_hub.cli.access.form import Field, fields_of
from mcp_hub.cli.render.output import say
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.events import InputRequired
from mcp_hub.masking import visible
from mcp_hub.protocol.rest.calls import ErrorBody, InputBody
from mcp_hub.types import JsonObject

if TYPE_CHECKING:
    from mcp_hub.cli.render.renderers import Show
    from mcp_hub.client import HubClient

with suppress(ImportError):  # Windows
    import termios

_CHUNK = 65536
_IN_URLS: Final = "".join(map(chr, range(0x21, 0x7F)))
_MOST: Final = 4000
"""Characters of one text of a server."""
_LINE: Final = 200
"""Characters of one that stands within a line."""
_TRIES: Final = (0.5, 2.0, 5.0)
"""Seconds after each attempt to send an answer."""
_LOOK: Final = 1.0
"""Seconds between two looks at whether a question is still open."""
_REFUSED: Final = -32601
_NOBODY: Final = "the user cannot be asked: the command that made the call has no terminal"
_REASONS: Final = {
    "sampling/createMessage": "the command does not have a model to sample",
    "roots/list": "the command does not have roots",
}
_LATE: Final = "The question is not open any more."
_T = TypeVar("_T")


def can_ask() -> bool:
    return sys.platform != "win32" and sys.stdin.isatty() and sys.stderr.isatty()


def _drop_typed(terminal: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    termios.tcflush(terminal, termios.TCIFLUSH)


class _Terminal:
    """Drops lines typed before a question."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        _drop_typed(self._input)

    def tell(self, text: str) -> None:
        say(text)

    async def ask(self, prompt: str) -> str:
        """Raises `EOFError` at the end of the input."""
        say(prompt, ends_line=False)
        try:
            await anyio.wait_readable(self._input)
        except anyio.get_cancelled_exc_class():
            self.tell("")
            raise
        try:
            line = os.read(self._input, _CHUNK)  # a terminal has one line for each read
        except OSError:
            line = b""
        if not line:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r\n")


class _Conversation(Protocol):
    def tell(self, text: str) -> None:
        """Shows a line."""

    async def ask(self, prompt: str) -> str:
        """The typed line. Raises `EOFError`."""


_Reply = tuple[Literal["accept", "decline"], dict[str, object] | None]
"""The answer to an elicitation: action and content."""
_DECLINED: Final[_Reply] = ("decline", None)


async def elicited(person: _Conversation, asker: str, params: JsonObject) -> _Reply:
    try:
        if params.get("mode") == "url":
            return await _visited(person, asker, str(params.get("url", "")), str(params.get("message", "")))
        return await _filled(person, asker, str(params.get("message", "")), fields_of(params.get("requestedSchema")))
    except EOFError:
        person.tell("")
        return _DECLINED


async def _filled(person: _Conversation, asker: str, message: str, fields: Sequence[Field]) -> _Reply:
    _quote(person, f"{_one_line(asker)} asks (Ctrl-D declines, Ctrl-C cancels the call):", message)
    if not fields:
        is_agreed = await _chosen(person, "Accept? [y]es, [d]ecline: ", {"y": True, "yes": True, "d": False})
        return ("accept", {}) if is_agreed else _DECLINED
    content: dict[str, object] = {}
    while True:
        for field in fields:
            await _take(person, field, content)
        person.tell("The answer:")
        for field in fields:
            value = _one_line(field.typed(content[field.name])) if field.name in content else "(left out)"
            person.tell(f"  {_one_line(field.title)}: {value}")
        choices = {"": "send", "y": "send", "yes": "send", "e": "edit", "edit": "edit", "d": "decline"}
        match await _chosen(person, "Send it? [Y]es, [e]dit, [d]ecline: ", choices):
            case "send":
                return "accept", content
            case "decline":
                return _DECLINED


async def _take(person: _Conversation, field: Field, content: dict[str, object]) -> None:
    """Asks until the text fits; an empty line keeps the default."""
    default = content.get(field.name, field.default)
    head = f"{_one_line(field.title)}{'' if field.is_required else ' (optional)'}"
    hint = f" ({_one_line(field.hint)})" if field.hint else ""
    described = f": {_one_line(field.description)}" if field.description else ""
    if hint or described or not field.is_required:
        person.tell(f"│ {head}{described}{hint}")
    for number, choice in enumerate(field.choices, 1):
        person.tell(f"│   {f'{number}) ' if field.is_numbered else ''}{_one_line(choice.title)}")
    suffix = "" if default is None else f" [{_one_line(field.typed(default))}]"
    while True:
        text = await person.ask(f"{_one_line(field.title)}{suffix}: ")
        try:
            if text.strip():
                content[field.name] = field.value(text)
            elif default is not None:
                content[field.name] = default
            elif field.is_required:
                raise ValueError("It is required.")
            return
        except ValueError as problem:
            person.tell(str(problem))


async def _visited(person: _Conversation, asker: str, url: str, message: str) -> _Reply:
    """Shows the whole URL in ASCII; never opens it."""
    _quote(person, f"{_one_line(asker)} asks you to open a page (Ctrl-D declines, Ctrl-C cancels the call):", message)
    for line in url_lines(url):
        person.tell(f"│ {line}")
    choices = {"y": True, "yes": True, "d": False}
    is_agreed = await _chosen(person, "Open it in a browser yourself if you trust it. [y] done, [d]ecline: ", choices)
    return ("accept", None) if is_agreed else _DECLINED


def url_lines(url: str) -> tuple[str, str]:
    return f"URL:  {quote(url[:_MOST], safe=_IN_URLS)}", f"Host: {_host(url)}"


def _host(url: str) -> str:
    """The host in IDNA, with a warning where a browser would not open it."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError:
        host = ""
    if not host or re.search(r"[\\\s\x00-\x1f]", url):  # browsers read a backslash as a slash
        return "(this is not a web address)"
    if parts.scheme not in ("https", "http"):
        return f"{_one_line(host)} (this is not a web address: {_one_line(parts.scheme) or 'no scheme'})"
    return f"{_one_line(host)}{'' if parts.scheme == 'https' else ' (not encrypted)'}"


async def _chosen(person: _Conversation, prompt: str, choices: Mapping[str, object]) -> object:
    while (text := (await person.ask(prompt)).strip().lower()) not in choices:
        pass
    return choices[text]


def _quote(person: _Conversation, head: str, text: str) -> None:
    person.tell(head)
    for line in _plain(text[:_MOST]).splitlines():
        person.tell(f"│ {line}")


def _plain(text: str) -> str:
    return visible(text)


def _one_line(text: str) -> str:
    line = " ".join(_plain(text[:_MOST]).split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def is_for_person(question: InputRequired) -> bool:
    return question.method == "elicitation/create" and can_ask()


async def answered(client: "HubClient", stream: str, question: InputRequired, show: "Show", asker: str) -> str:
    """Answers a question of the tool `asker`; returns a note."""
    if not is_for_person(question):
        reason = _REASONS.get(question.method, _NOBODY)
        await _send(client, stream, InputBody(question.key, error=ErrorBody(_REFUSED, reason)))
        return f"declined what the tool asks: {question.method} ({reason})"
    with show.paused():
        reply = await _while_open(client, stream, question.key, lambda: _ask_person(question, asker))
    if reply is None:
        return _LATE
    action, values = reply
    content = UNSET if values is None else Raw(msgspec.json.encode(values))
    is_in_time = await _send(client, stream, InputBody(question.key, action=action, content=content))
    message = "declined" if action == "decline" else "answered"
    return f"{message} what the tool asks" if is_in_time else _LATE


async def _ask_person(question: InputRequired, asker: str) -> _Reply:
    try:
        params = msgspec.json.decode(question.params, type=JsonObject)
    except (msgspec.DecodeError, RecursionError):
        params = {}
    return await elicited(_Terminal(), asker, params)


async def _while_open(client: "HubClient", stream: str, key: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
    """The result of `ask`; None if the question closes first."""
    answer: _T | None = None
    if not await _is_open(client, stream, key):
        return None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while True:
                await anyio.sleep(_LOOK)
                if not await _is_open(client, stream, key):
                    tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        answer = await ask()
        tasks.cancel_scope.cancel()
    return answer


async def _is_open(client: "HubClient", stream: str, key: str) -> bool:
    try:
        status = await client.status(stream)
    except RpcError:
        return True
    return status.questions is not UNSET and any(question.key == key for question in status.questions)


async def _send(client: "HubClient", stream: str, body: InputBody) -> bool:
    """Sends an answer, with retries. False: it is not taken."""
    for pause in _TRIES:
        try:
            await client.answer(stream, body)
        except InvalidParams:
            return False
        except RpcError:
            await anyio.sleep(pause)
        else:
            return True
    return False
