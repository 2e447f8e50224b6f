"""Questions and warnings of an import."""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Final

import msgspec
from msgspec.structs import asdict

from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, answer, put, say
from mcp_hub.cli.render.servers import described
from mcp_hub.cli.trials import MeasuredCosts, Trial
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.imported import Input, sources_of
from mcp_hub.config.load.interpolate import escaped, variable_of_input
from mcp_hub.config.load.secrets import target_of
from mcp_hub.masking import hide, hide_head, hide_within, visible
from mcp_hub.onboarding.imports.plan import ImportPlan, TakenServer
from mcp_hub.onboarding.registry.dangers import decides_code
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.process.commands import withheld

_LONGEST: Final = 1000
"""Characters of the text of an input."""


class AskedInputs:
    """References for inputs; `settle` asks for missing values.

    A value comes from the environment, an earlier import, the person, or a default that is not a password.
    """

    def __init__(self, secrets: KeptSecrets, *, asks: bool) -> None:
        self._secrets = secrets
        self._asks = asks and is_anybody_there()
        self._references: dict[str, str] = {}
        self._open: dict[str, Input] = {}

    def ask(self, item: Input) -> str:
        """The reference of an input."""
        if item.id not in self._references:
            self._references[item.id] = self._reference(item)
        return self._references[item.id]

    def settle(self, plan: ImportPlan) -> ImportPlan:
        """The plan with values typed now."""
        for reference, item in self._open.items():
            users = [server for server in plan.taken if _uses(server.entry, reference)]
            if not users:
                continue
            value = self._value(item, users) if self._asks else ""
            if value:
                plan = _with(plan, reference, self._secrets.keep_as(item.id, value))
            else:
                names = ", ".join(server.name for server in users)
                verb = "needs" if len(users) == 1 else "need"
                message = " ".join(f"{names} {verb} a value, {_label(item)}".split())
                say(f"{hide_head(message, _LONGEST, '…')}. Set it with: {self._secrets.command(reference)}")
        self._open.clear()
        return plan

    def _reference(self, item: Input) -> str:
        name, default = variable_of_input(item.id), item.default
        if name in os.environ:
            return f"${{{name}}}"
        if default is not None and not item.password and not self._asks:
            is_plain = "}" not in default and "${" not in default
            return f"${{{name}:-{default}}}" if is_plain else escaped(default)
        reference, has_value = self._secrets.place_of(item.id)
        if not has_value:
            self._open[reference] = item
        return reference

    def _value(self, item: Input, users: list[TakenServer]) -> str:
        names = ", ".join(server.name for server in users)
        sources = ", ".join(dict.fromkeys(source for server in users for source in server.sources))
        empty = "set it later" if item.default is None else "the default" if item.password else item.default
        verb = "needs" if len(users) == 1 else "need"
        question = f"{names} ({sources}) {verb} {_label(item)}. Value (Enter: {empty})"
        return answer(question, item.default or "", is_secret=item.password, shows_default=False)


def with_agreed_paths(plan: ImportPlan, *, yes: bool, asks: bool, tells: bool = True) -> ImportPlan:
    """The plan with servers whose mapped Windows paths are agreed to, all with `yes`."""
    reasons: dict[str, str] = {}
    for server in plan.taken:
        name, listed = server.name, hide_head("; ".join(server.renamed), _LONGEST, "…")
        if not server.renamed:
            continue
        if yes:
            say(f"{name}: {listed}")
        elif not asks:
            message = f"it has paths of Windows, for which nobody could be asked: {listed}. To take it: mcp-hub import"
            origin = next(origin for origin in server.origins if origin.renamed)
            reasons[name] = f"{message} {origin.client if origin.is_users else quote(origin.source)} --yes"
        elif not agrees(f"{name}: {listed}. Take it with these paths?", default=True):
            reasons[name] = "its paths of Windows stay"
    for name, reason in reasons.items() if tells else ():
        say(f"not taken: {name}: {reason}")
    return plan.without(reasons)


def is_anybody_there() -> bool:
    return sys.stdin.isatty()


def _label(item: Input) -> str:
    return f'"{item.description or item.id}"'


def _uses(tree: object, reference: str) -> bool:
    if isinstance(tree, dict):
        return any(_uses(value, reference) for value in tree.values())
    if isinstance(tree, list):
        return any(_uses(value, reference) for value in tree)
    return isinstance(tree, str) and re.search(_pattern(reference), tree) is not None


def _pattern(reference: str) -> str:
    return rf"(?<!\$){re.escape(reference)}"


def _with(plan: ImportPlan, before: str, after: str) -> ImportPlan:
    taken = [msgspec.structs.replace(server, entry=_replaced(server.entry, before, after)) for server in plan.taken]
    return msgspec.structs.replace(plan, taken=tuple(taken))


def _replaced(entry: JsonObject, before: str, after: str) -> JsonObject:
    def changed(tree: object) -> object:
        if isinstance(tree, dict):
            return {key: changed(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [changed(value) for value in tree]
        return re.sub(_pattern(before), lambda _: after, tree) if isinstance(tree, str) else tree

    return {key: changed(value) for key, value in entry.items()}


def print_plan(plan: ImportPlan, *, is_dry: bool = False) -> None:
    """Prints the servers to stdout, notes to stderr."""
    for server in plan.taken:
        old = f"; there: {', '.join(server.old_names)}" if server.old_names else ""
        lines = ((f"{server.name} ({', '.join(server.sources)}{old})", "bold"), (f"  {described(server.entry)}", ""))
        tables.print_lines([(visible(hide(on_one_line(text))), style) for text, style in lines])
    if not plan.sources and not plan.skipped and not plan.problems:
        say("No servers of other clients were found. Add one with: mcp-hub add NAME -- COMMAND")
        return
    say(hide("\n".join(_summary(plan, is_dry=is_dry))))
    for name, source, reason in plan.skipped:
        say(hide(on_one_line(f"not taken: {name} ({source}): {reason}")))
    for server in plan.taken:
        if server.left_out:
            say(f"{server.name}: the hub does not have these keys: {', '.join(server.left_out)}")
    for server in plan.taken:
        if isinstance(box := server.entry.get("sandbox"), dict):
            rule = ", ".join(f"{key}: {_value_text(value)}" for key, value in box.items())
            say(hide(on_one_line(f"{server.name}: keeps the sandbox that it has there, as {rule}")))
    for line in _passing(plan.taken, os.environ):
        say(hide(on_one_line(line)))
    for problem in plan.problems:
        say(hide(f"warning: {problem}"))


def _summary(plan: ImportPlan, *, is_dry: bool) -> Iterator[str]:
    are_clients = all(server.is_users for server in plan.taken) and all(server.is_users for server in plan.there)
    servers = tables.plural(len(plan.taken), "server")
    sources = tables.plural(len(plan.sources), "client" if are_clients else "source")
    doubles = tables.plural(plan.doubles, "double")
    yield f"{servers} from {sources}, {doubles} merged, {len(plan.skipped)} not taken"
    if is_dry and plan.taken:
        yield f"Would write {servers} to {plan.file.path}"


def _value_text(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _passing(taken: Sequence[TakenServer], env: Mapping[str, str]) -> Iterator[str]:
    """Mapped paths, values from outside, variables to propose, and variables that none gets."""
    for server in taken:
        if server.renamed:
            yield f"{server.name}: has paths of Windows; in this Linux {'; '.join(server.renamed)}"
        if sources := server.sources_outside:
            target = target_of(server.entry.get("command"), server.entry.get("url"))
            yield f"{server.name}: gets {', '.join(sources)} of this machine, for {target}"
        if names := ", ".join(server.proposed(env)):
            yield f"{server.name}: may need {names} of this shell, which it does not get without pass_env: [{names}]"
    if any("command" in server.entry for server in taken) and (names := ", ".join(withheld(env))):
        why = "variables like these can open an account, a machine or the desktop"
        unless = "unless its entry in servers.yaml lists the name under pass_env"
        yield f"no server gets {names} of this shell, {unless}: {why}"


def print_alerts(plan: ImportPlan, env: Mapping[str, str]) -> bool:
    """Prints alerts in red; returns whether any is about a file of others."""
    is_strange = False
    for server in plan.taken:
        lines = list(_alerts(server, env))
        is_strange |= bool(lines) and not server.is_users
        for line in lines:
            say(hide(on_one_line(f"{server.name}: {line}")), "red")
    return is_strange


def _alerts(server: TakenServer, env: Mapping[str, str]) -> Iterator[str]:
    variables = server.entry.get("env")
    for name in variables if isinstance(variables, dict) else ():
        if decides_code(name):
            yield f"{name} decides what the program loads, or whom it talks to"
    if server.is_users:
        return
    target = target_of(server.entry.get("command"), server.entry.get("url"))
    sources = list(_sources(server.entry))
    if names := ", ".join(f"{name[1:]} ({key})" for name, key in sources if name[0] == "$" and name[1:] in env):
        yield f"{target} gets the values of your variables: {names}"
    if names := ", ".join(f"{name} ({key})" for name, key in sources if name[0] != "$"):
        yield f"{target} gets these secrets: {names}"


def _sources(entry: JsonObject) -> Iterator[tuple[str, str]]:
    for key, value in entry.items():
        for label, text in value.items() if isinstance(value, dict) else [("", value)]:
            for source in sources_of(text):
                yield source, f"{key} {label}".strip()


def data_of(plan: ImportPlan, trial: Trial, *, written: bool, costs: MeasuredCosts | None) -> JsonObject:
    """The import for `--json`."""
    taken = [
        {
            "name": item.name,
            "from": item.sources,
            "entry": hide_within(item.entry),
            "left_out": item.left_out,
            "paths": [hide(line) for line in item.renamed],
            "pass_env": item.proposed(os.environ),
            "gets": item.sources_outside,
            "alerts": [hide(line) for line in _alerts(item, os.environ)],
        }
        for item in plan.taken
    ]
    gone = [{"name": name, "from": source, "reason": hide(reason)} for name, source, reason in plan.skipped]
    counted = None if costs is None else {**asdict(costs), "absent": [item.server for item in costs.absent]}
    return {
        **{"file": str(plan.file.path), "written": written, "servers": taken, "not_taken": gone},
        "sandbox": {"on": [*trial.passed, *trial.failed], "off": hide_within({**trial.refused, **trial.untried})},
        **{"doubles": plan.doubles, "tokens": counted, "warnings": [hide(str(item)) for item in plan.problems]},
    }


def print_costs(costs: MeasuredCosts) -> None:
    """Prints how many servers work, the others, and the tokens."""
    tables.print_outcome(costs.working, costs.absent)
    if costs.tools:
        put(saving(costs))


def saving(costs: MeasuredCosts) -> str:
    """A sentence on the tools' tokens without and with the hub."""
    verb = "costs" if costs.tools == 1 else "cost"
    message = f"{tables.plural(costs.tools, 'tool')} {verb} {costs.before:,} tokens in every session; through the hub "
    if costs.after < costs.before:
        return f"{message}{costs.after:,}."
    if costs.mode != "full":
        return f"{message}{costs.after:,}, because so few tools take less than the hub's own."
    if costs.expose == "auto":
        return f"{message}{costs.after:,}: up to {costs.budget:,} it lists all of them in full."
    return f"{message}{costs.after:,}, because the configuration has it list all of them (expose: {costs.expose})."
