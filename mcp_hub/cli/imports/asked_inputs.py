"""Values that VS Code asks for (`${input:NAME}`): a person at the terminal answers once, or sees how to set them."""

import os
import re
import sys
from shlex import quote
from typing import Final

import msgspec

from mcp_hub.cli.imports.plan import ImportPlan, TakenServer
from mcp_hub.cli.render.output import agrees, answer, say
from mcp_hub.cli.servers_file.kept_secrets import KeptSecrets
from mcp_hub.config.load.imported import Input
from mcp_hub.config.load.interpolate import escaped, variable_of_input
from mcp_hub.masking import hide_head
from mcp_hub.types import JsonObject

_LONGEST: Final = 1000
"""Characters of the text of an input."""


class AskedInputs:
    """The `${…}` for each input. `settle` asks for its value, if the command `asks` and a person is there.

    The value comes from the environment variable of the input's name if that is set now; else from what an earlier
    import kept; else from the person; else it is the default, if the input has one and is not a password.
    """

    def __init__(self, secrets: KeptSecrets, *, asks: bool) -> None:
        self._secrets = secrets
        self._asks = asks and is_anybody_there()
        self._references: dict[str, str] = {}
        self._open: dict[str, Input] = {}

    def ask(self, wanted: Input) -> str:
        """The `${…}` of an input, the same each time."""
        if wanted.id not in self._references:
            self._references[wanted.id] = self._reference(wanted)
        return self._references[wanted.id]

    def settle(self, plan: ImportPlan) -> ImportPlan:
        """The plan with the values that a person types now. For each other value it says how to set it later."""
        for reference, wanted in self._open.items():
            users = [server for server in plan.taken if _uses(server.own, reference)]
            if not users:
                continue
            value = self._value(wanted, users) if self._asks else ""
            if value:
                plan = _with(plan, reference, self._secrets.keep_as(wanted.id, value))
            else:
                names = ", ".join(server.name for server in users)
                verb = "needs" if len(users) == 1 else "need"
                said = " ".join(f"{names} {verb} a value, {_label(wanted)}".split())
                say(f"{hide_head(said, _LONGEST, '…')}. Set it with: {self._secrets.command(reference)}")
        self._open.clear()
        return plan

    def _reference(self, wanted: Input) -> str:
        name, default = variable_of_input(wanted.id), wanted.default
        if name in os.environ:
            return f"${{{name}}}"
        if default is not None and not wanted.password and not self._asks:
            is_plain = "}" not in default and "${" not in default
            return f"${{{name}:-{default}}}" if is_plain else escaped(default)
        reference, has_value = self._secrets.place_of(wanted.id)
        if not has_value:
            self._open[reference] = wanted
        return reference

    def _value(self, wanted: Input, users: list[TakenServer]) -> str:
        """The answer of the person, or the default; empty for a value that is to be set later."""
        names = ", ".join(server.name for server in users)
        sources = ", ".join(dict.fromkeys(source for server in users for source in server.sources))
        empty = "set it later" if wanted.default is None else "the default" if wanted.password else wanted.default
        verb = "needs" if len(users) == 1 else "need"
        question = f"{names} ({sources}) {verb} {_label(wanted)}. Value (Enter: {empty})"
        return answer(question, wanted.default or "", is_secret=wanted.password, shows_default=False)


def with_agreed_paths(plan: ImportPlan, *, yes: bool, asks: bool, tells: bool = True) -> ImportPlan:
    """The plan with those servers whose paths of Windows may have their names in this Linux.

    With `yes` they do, and the command says so; if it `asks`, a person decides; else the servers stay where they are,
    which the command `tells`.
    """
    reasons: dict[str, str] = {}
    for one in plan.taken:
        name, listed = one.name, hide_head("; ".join(one.renamed), _LONGEST, "…")
        if not one.renamed:
            continue
        if yes:
            say(f"{name}: {listed}")
        elif not asks:
            said = f"it has paths of Windows, for which nobody could be asked: {listed}. To take it: mcp-hub import"
            found = next(found for found in one.found if found.renamed)
            reasons[name] = f"{said} {found.client if found.is_users else quote(found.source)} --yes"
        elif not agrees(f"{name}: {listed}. Take it with these paths?", default=True):
            reasons[name] = "its paths of Windows stay"
    for name, reason in reasons.items() if tells else ():
        say(f"not taken: {name}: {reason}")
    return plan.without(reasons)


def is_anybody_there() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()


def _label(wanted: Input) -> str:
    return f'"{wanted.description or wanted.id}"'


def _uses(tree: object, reference: str) -> bool:
    if isinstance(tree, dict):
        return any(_uses(value, reference) for value in tree.values())
    if isinstance(tree, list):
        return any(_uses(value, reference) for value in tree)
    return isinstance(tree, str) and re.search(_pattern(reference), tree) is not None


def _pattern(reference: str) -> str:
    """The reference, unless its `$` is escaped."""
    return rf"(?<!\$){re.escape(reference)}"


def _with(plan: ImportPlan, before: str, after: str) -> ImportPlan:
    """The plan with another reference in its servers."""
    taken = [msgspec.structs.replace(server, own=_replaced(server.own, before, after)) for server in plan.taken]
    return msgspec.structs.replace(plan, taken=tuple(taken))


def _replaced(own: JsonObject, before: str, after: str) -> JsonObject:
    def changed(tree: object) -> object:
        if isinstance(tree, dict):
            return {key: changed(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [changed(value) for value in tree]
        return re.sub(_pattern(before), lambda _: after, tree) if isinstance(tree, str) else tree

    return {key: changed(value) for key, value in own.items()}
