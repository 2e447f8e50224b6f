"""The conversation about one question. The end of the input (Ctrl-D) declines."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from mcp_hub.cli.questions.form import Field, Unfit, fields_of
from mcp_hub.masking import visible
from mcp_hub.types import JsonObject

_IN_URLS: Final = "".join(map(chr, range(0x21, 0x7F)))
_MOST: Final = 4000
"""Characters of one text of a server."""
_LINE: Final = 200
"""Characters of one that stands within a line."""


class Conversation(Protocol):
    """A person who reads and types lines."""

    def tell(self, text: str) -> None:
        """Shows a line."""

    async def ask(self, prompt: str) -> str:
        """The typed line. Raises `EOFError`."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to an elicitation."""

    action: Literal["accept", "decline"]
    content: dict[str, object] | None = None


_DECLINED: Final = Reply("decline")


async def elicited(person: Conversation, asker: str, params: JsonObject) -> Reply:
    try:
        if params.get("mode") == "url":
            return await _visited(person, asker, str(params.get("url", "")), str(params.get("message", "")))
        return await _filled(person, asker, str(params.get("message", "")), fields_of(params.get("requestedSchema")))
    except EOFError:
        person.tell("")
        return _DECLINED


async def _filled(person: Conversation, asker: str, message: str, fields: Sequence[Field]) -> Reply:
    _quote(person, f"{_one_line(asker)} asks (Ctrl-D declines, Ctrl-C cancels the call):", message)
    if not fields:
        is_agreed = await _chosen(person, "Accept? [y]es, [d]ecline: ", {"y": True, "yes": True, "d": False})
        return Reply("accept", {}) if is_agreed else _DECLINED
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
                return Reply("accept", content)
            case "decline":
                return _DECLINED


async def _take(person: Conversation, field: Field, content: dict[str, object]) -> None:
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
                raise Unfit("It is required.")
            return
        except Unfit as problem:
            person.tell(str(problem))


async def _visited(person: Conversation, asker: str, url: str, message: str) -> Reply:
    """Shows the whole URL in ASCII, and never opens it."""
    _quote(person, f"{_one_line(asker)} asks you to open a page (Ctrl-D declines, Ctrl-C cancels the call):", message)
    for line in url_lines(url):
        person.tell(f"│ {line}")
    choices = {"y": True, "yes": True, "d": False}
    is_agreed = await _chosen(person, "Open it in a browser yourself if you trust it. [y] done, [d]ecline: ", choices)
    return Reply("accept") if is_agreed else _DECLINED


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


async def _chosen(person: Conversation, prompt: str, choices: Mapping[str, object]) -> object:
    while (text := (await person.ask(prompt)).strip().lower()) not in choices:
        pass
    return choices[text]


def _quote(person: Conversation, head: str, text: str) -> None:
    person.tell(head)
    for line in _plain(text[:_MOST]).splitlines():
        person.tell(f"│ {line}")


def _plain(text: str) -> str:
    return visible(text)


def _one_line(text: str) -> str:
    line = " ".join(_plain(text[:_MOST]).split())
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
